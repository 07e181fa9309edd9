//! Secret that two machines share, and the proof that each has it.
//!
//! Both sides send 32 random bytes. Each answers with a keyed BLAKE3 hash of its role and both. A proof of one side
//! or one connection is useless for any other. The traffic that follows is not encrypted: the secret keeps out
//! strangers, not eavesdroppers.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// Secret shared by server and clients, as a derived key.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Reason why a file is not accepted as a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Users other than the owner have permission to read the file.
    #[error("the secret {path} may be read by others (mode {mode:o}): chmod 600 {path}")]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The secret is short enough to be guessed.
    #[error("the secret {path} has {bytes} bytes, at least 16 are needed: head -c 32 /dev/urandom | base64 >{path}")]
    Short {
        /// Path of the file.
        path: PathBuf,
        /// Length of the secret, bytes.
        bytes: usize,
    },
}

/// Side of a connection that proves.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Client,
    Server,
}

impl Secret {
    /// Derives a secret from any number of bytes.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(blake3::derive_key("forebay 2026-11-22 connection secret", bytes))
    }

    /// Reads a secret file, which only its owner may have permission to read. White space at its end is ignored.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let failed = |source| SecretError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Open { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::new();
        file.take(SECRET_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        let bytes = bytes.trim_ascii_end();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretError::Short { path: path.to_owned(), bytes: bytes.len() });
        }
        Ok(Secret::new(bytes))
    }

    /// Returns the proof of one side. `spoken`: the agreed version and the session, so that neither can be exchanged.
    pub(crate) fn proof(&self, role: Role, client: &[u8; 32], server: &[u8; 32], spoken: &[u8]) -> [u8; 32] {
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        hash.update(match role {
            Role::Client => b"client",
            Role::Server => b"server",
        });
        hash.update(client).update(server).update(spoken);
        *hash.finalize().as_bytes()
    }
}

/// Compares in constant time, so that the duration does not reveal where the difference is.
pub(crate) fn equal(proof: &[u8; 32], wanted: &[u8; 32]) -> bool {
    blake3::Hash::from_bytes(*proof) == blake3::Hash::from_bytes(*wanted)
}

/// Returns random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    concurrency::random_bytes(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_file_is_private_and_long_enough() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::read(&path)
        };
        assert!(write("0123456789abcdef\n", 0o600).is_ok());
        assert!(matches!(write("0123456789abcdef", 0o640), Err(SecretError::Open { mode: 0o640, .. })));
        assert!(matches!(write("0123456789abcde\n\n", 0o600), Err(SecretError::Short { bytes: 15, .. })));
        assert!(matches!(Secret::read(&directory.path().join("none")), Err(SecretError::Read { .. })));
    }

    #[test]
    fn a_proof_is_of_one_side_one_secret_and_one_handshake() {
        let (a, b) = (Secret::new(b"one secret"), Secret::new(b"another"));
        let proof =
            |secret: &Secret, role, client: u8, spoken: &[u8]| secret.proof(role, &[client; 32], &[9; 32], spoken);
        let wanted = proof(&a, Role::Client, 1, b"x");
        assert!(equal(&wanted, &proof(&a, Role::Client, 1, b"x")));
        for other in [
            proof(&b, Role::Client, 1, b"x"),
            proof(&a, Role::Server, 1, b"x"),
            proof(&a, Role::Client, 2, b"x"),
            proof(&a, Role::Client, 1, b"y"),
        ] {
            assert!(!equal(&wanted, &other));
        }
    }
}
