//! Links to the preload library by which each kind of program loads it, or does not.
//!
//! ```text
//! DIR/forebay-preload-UID-HASH/libasan.so/     HASH: of the library's path
//!     x86_64/libforebay_preload.so             a link to the library
//!     haswell, xeon_phi                        links to x86_64: what glibc calls such processors
//!     i686/libforebay_preload.so               an empty library of 32 bits
//!     i386, i486, i586                         links to i686
//! ```
//!
//! `LD_PRELOAD` names `DIR/.../libasan.so/$PLATFORM/libforebay_preload.so`:
//!
//! * The loader of glibc replaces `$PLATFORM` by its platform, so 64-bit programs load the library and 32-bit
//!   programs load an empty one. Other loaders (musl's) find no such file and silently continue.
//! * The address sanitizer of gcc and clang ends a program in which another library is loaded before it, unless that
//!   library's path looks like a part of the sanitizer. The order does not matter here: the library calls the
//!   sanitizer's functions, as a program does, and has no `malloc`. The links lead elsewhere, so that a statically
//!   linked sanitizer does not take the library for a second sanitizer.
//!
//! The links are made under another name first, so that all or none exist. An agent that is killed meanwhile leaves
//! some KiB. Nobody removes the directory, because programs that outlive the agent, and shells of `forebay mount
//! --window`, still name it.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::FILE;
use super::empty::empty_library;

/// Text that the address sanitizer looks for in the path of the library loaded first.
const LIKE_SANITIZER: &str = "libasan.so";
/// Directory of links for 64-bit programs, and glibc's other names for the platform.
const WIDE: (&str, [&str; 2]) = ("x86_64", ["haswell", "xeon_phi"]);
/// Directory of links for 32-bit programs, and glibc's other names.
const NARROW: (&str, [&str; 3]) = ("i686", ["i386", "i486", "i586"]);

/// Returns the name of `library` for `LD_PRELOAD`, and makes its links in `dir` if they are missing. Errors:
/// `InvalidInput` if no such name can stand in `LD_PRELOAD`; `PermissionDenied` if somebody else made the existing
/// files; errors of making them.
pub fn provide(library: &Path, dir: &Path) -> io::Result<PathBuf> {
    if !is_plain(dir.as_os_str()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let us = rustix::process::geteuid().as_raw();
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let links = dir.join(format!("forebay-preload-{us}-{:016x}", hasher.finish()));
    if !is_there(&links, us)? {
        make(library, &links)?;
    }
    Ok(links.join(LIKE_SANITIZER).join("$PLATFORM").join(FILE))
}

/// Returns whether a path can stand in `LD_PRELOAD`, which has no way to quote.
pub fn is_plain(path: &OsStr) -> bool {
    !path.as_bytes().iter().any(|byte| b": \t\n$".contains(byte))
}

fn is_there(links: &Path, us: u32) -> io::Result<bool> {
    match fs::symlink_metadata(links) {
        Ok(found) if found.is_dir() && found.uid() == us && found.mode() & 0o022 == 0 => Ok(true),
        Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn make(library: &Path, links: &Path) -> io::Result<()> {
    let fresh = links.with_extension(std::process::id().to_string());
    // Left by a killed process that had our number.
    let _ = fs::remove_dir_all(&fresh);
    let made = fill(library, &fresh).and_then(|()| match fs::rename(&fresh, links) {
        // Another run was first.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(&fresh),
        renamed => renamed,
    });
    made.inspect_err(|_| _ = fs::remove_dir_all(&fresh))
}

fn fill(library: &Path, fresh: &Path) -> io::Result<()> {
    let inner = fresh.join(LIKE_SANITIZER);
    let open = |dir: &Path| {
        fs::create_dir(dir)?;
        // Independent of the umask, since programs of other users load it.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
    };
    let wide = inner.join(WIDE.0);
    let narrow = inner.join(NARROW.0);
    [fresh, &inner, &wide, &narrow].into_iter().try_for_each(open)?;
    symlink(library, wide.join(FILE))?;
    let empty = narrow.join(FILE);
    fs::write(&empty, empty_library())?;
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o644))?;
    WIDE.1.iter().try_for_each(|name| symlink(WIDE.0, inner.join(name)))?;
    NARROW.1.iter().try_for_each(|name| symlink(NARROW.0, inner.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S64
    fn links_are_made_once_and_not_where_somebody_else_made_something() {
        let tree = tempfile::tempdir().unwrap();
        let library = Path::new("/somewhere: else/libforebay_preload.so");
        let name = provide(library, tree.path()).unwrap();
        assert!(is_plain(name.parent().unwrap().parent().unwrap().as_os_str()));
        for platform in ["x86_64", "haswell", "xeon_phi"] {
            let link = name.to_str().unwrap().replace("$PLATFORM", platform);
            assert_eq!(fs::read_link(link).unwrap(), library);
        }
        for platform in ["i386", "i486", "i586", "i686"] {
            let empty = name.to_str().unwrap().replace("$PLATFORM", platform);
            assert_eq!(fs::read(empty).unwrap(), empty_library());
        }
        assert_eq!(provide(library, tree.path()).unwrap(), name);
        assert_ne!(provide(Path::new("/other.so"), tree.path()).unwrap(), name);
        let own = fs::read_dir(tree.path()).unwrap().map(|entry| entry.unwrap().path());
        own.for_each(|links| fs::set_permissions(links, fs::Permissions::from_mode(0o777)).unwrap());
        let refused = provide(library, tree.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let odd = tree.path().join("a:b");
        assert_eq!(provide(library, &odd).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
