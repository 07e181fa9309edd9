//! Addresses at which a server listens: `unix:PATH` or `tcp:HOST:PORT`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Address at which a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Path of a socket in the file system, for processes of this machine.
    Unix(PathBuf),
    /// Host name or IP address, and port. An IPv6 address is written in brackets.
    Tcp(String),
}

/// Text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address: write unix:PATH or tcp:HOST:PORT")]
pub struct AddressError(pub String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError(text.to_owned());
        match text.split_once(':').ok_or_else(wrong)? {
            ("unix", path) if !path.is_empty() => Ok(Address::Unix(PathBuf::from(path))),
            ("tcp", place) => {
                let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
                if host.is_empty() || port.parse::<u16>().is_err() {
                    return Err(wrong());
                }
                Ok(Address::Tcp(place.to_owned()))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed_and_others_refused() {
        for text in ["unix:/run/forebay.sock", "tcp:node7:4711", "tcp:[::1]:4711"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "node7:4711", "tcp:node7", "tcp::4711", "tcp:a:70000", "unix:", "udp:a:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
