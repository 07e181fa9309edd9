//! Hosts on which the groups of a sweep run.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    reach: Reach,
    name: String,
    /// Path of the program on the host; `None`: as on this machine.
    program: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Ssh,
    Srun,
    Mpirun,
    Namespace,
    Process,
}

/// Prefixes of hosts that are part of this machine and use its processors and devices.
const HERE: [&str; 2] = ["netns:", "pid:"];

/// Returns whether a host, as the user named it, is part of this machine.
pub fn is_here(host: &str) -> bool {
    HERE.iter().any(|prefix| host.starts_with(prefix))
}

impl Host {
    /// Parses `NAME` (ssh), `srun:NAME`, `mpirun:NAME`, `netns:NAME` or `pid:N`. Errors: a sentence for the user.
    pub fn parse(text: &str, program: Option<&Path>) -> Result<Host, String> {
        let (reach, name) = match text.split_once(':') {
            Some(("srun", name)) => (Reach::Srun, name),
            Some(("mpirun", name)) => (Reach::Mpirun, name),
            Some(("netns", name)) => (Reach::Namespace, name),
            Some(("pid", number)) => (Reach::Process, number),
            Some(("ssh", name)) => (Reach::Ssh, name),
            Some((other, _)) => {
                return Err(format!("`{other}:` is no way to a host: ssh:, srun:, mpirun:, netns: or pid:"));
            }
            None => (Reach::Ssh, text),
        };
        // ssh would take a name that starts with a dash as an option.
        let plain = |c: char| c.is_alphanumeric() || "._-@".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(format!("`{name}` is no name of a host"));
        }
        if reach == Reach::Process && !name.chars().all(|c| c.is_ascii_digit()) {
            return Err(format!("`{name}` is no number of a process"));
        }
        Ok(Host { reach, name: name.to_string(), program: program.map(Path::to_path_buf) })
    }

    /// Returns the command that runs the program on the host, with our standard input and output.
    pub fn command(&self, program: &Path, words: &[OsString]) -> Command {
        let program = self.program.as_deref().unwrap_or(program).as_os_str();
        let (first, rest): (&str, &[&str]) = match self.reach {
            Reach::Ssh => ("ssh", &["-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "--"]),
            Reach::Srun => ("srun", &["--nodes=1", "--ntasks=1", "--quiet", "--nodelist"]),
            // Options common to MPICH and Open MPI. Both pass standard input to the first process, which is the only
            // one.
            Reach::Mpirun => ("mpirun", &["-np", "1", "-host"]),
            Reach::Namespace => ("ip", &["netns", "exec"]),
            Reach::Process => ("nsenter", &["--net", "--mount", "--target"]),
        };
        let mut command = Command::new(first);
        command.args(rest).arg(&self.name);
        match self.reach {
            // Quoted, because a shell on the host parses it.
            Reach::Ssh => command.arg(quoted(program)).args(words.iter().map(|word| quoted(word))),
            Reach::Srun | Reach::Mpirun | Reach::Namespace | Reach::Process => command.arg(program).args(words),
        };
        command
    }
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_reached_as_its_prefix_says_and_a_shell_gets_quotes() {
        let words = ["it's".into()];
        let line = |text: &str| {
            let command = Host::parse(text, None).unwrap().command(Path::new("/opt/f b"), &words);
            let all = std::iter::once(command.get_program()).chain(command.get_args());
            all.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("a@n1"), r"ssh -o BatchMode=yes -o ServerAliveInterval=10 -- a@n1 '/opt/f b' 'it'\''s'");
        assert_eq!(line("netns:left"), "ip netns exec left /opt/f b it's");
        assert_eq!(line("pid:4711"), "nsenter --net --mount --target 4711 /opt/f b it's");
        assert!(line("srun:n7").starts_with("srun --nodes=1 --ntasks=1 --quiet --nodelist n7 /opt"));
        assert_eq!(line("mpirun:n7"), "mpirun -np 1 -host n7 /opt/f b it's");
        for wrong in ["", "-oProxyCommand=x", "a b", "mpi:a", "n;rm", "pid:x", "pid:"] {
            assert!(Host::parse(wrong, None).is_err(), "{wrong}");
        }
    }
}
