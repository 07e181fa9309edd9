//! Checks of FUSE: the device, the protocol and passthrough. A probe tries them in a process that can be killed if it
//! hangs.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Check;
use crate::exit::reason;
use crate::limits::{POLL, PROBE};

pub fn checks(buffer: Option<&Path>) -> Vec<Check> {
    let device = match fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Check::ok("/dev/fuse", "opens"),
        Err(error) => {
            let remedy = "modprobe fuse; chmod 666 /dev/fuse; in a container --device /dev/fuse";
            return vec![Check::missing("/dev/fuse", reason(&error), remedy), uring()];
        }
    };
    let (answers, error) = probe(buffer);
    let find = |key: &str| answers.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let mut checks = vec![device];
    match (find("protocol"), find("mount")) {
        (Some(version), _) => checks.push(Check::ok("FUSE protocol", version)),
        (None, Some(_)) => {
            checks.push(Check::missing("FUSE protocol", error.as_str(), "a mount was made and did not answer"))
        }
        (None, None) => {
            let remedy = "mounting is not permitted here: run as root, or allow user namespaces";
            checks.push(Check::missing("FUSE mount", error.as_str(), remedy));
        }
    }
    match find("passthrough") {
        Some("yes") => checks.push(Check::ok("passthrough", "tried: the kernel reads replicas itself")),
        Some(why) => {
            let remedy = "it needs root and a kernel from 6.9; without it all data goes through the agent";
            checks.push(Check::limited("passthrough", why, remedy));
        }
        None => checks.push(Check::limited("passthrough", "not tried: no mount", "see above")),
    }
    checks.push(uring());
    checks
}

/// Runs the probe. Returns its output and its first line of errors.
fn probe(buffer: Option<&Path>) -> (String, String) {
    let mut command = Command::new("/proc/self/exe");
    command.args(["probe", "fuse"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(dir) = buffer.filter(|dir| dir.is_dir()) {
        command.env("FOREBAY_PROBE_DIR", dir);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (String::new(), reason(&error)),
    };
    let start = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(None) if start.elapsed() < PROBE => std::thread::sleep(POLL / 10),
            Ok(Some(_)) => break true,
            _ => break false,
        }
    };
    if !ended {
        // Not waited for: it may be stuck in the kernel until its connection is gone.
        let _ = child.kill();
        return (String::new(), format!("no answer within {} s", PROBE.as_secs()));
    }
    let (mut answers, mut error) = (String::new(), String::new());
    // Ended, so that both pipes have all they will ever have; both texts are short.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut answers));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut error));
    (answers, error.lines().next().unwrap_or_default().trim_start_matches("forebay: ").to_string())
}

fn uring() -> Check {
    match fs::read_to_string("/sys/module/fuse/parameters/enable_uring").as_deref().map(str::trim) {
        Ok("Y" | "1") => Check::ok("FUSE io_uring", "enabled; this version does not use it yet"),
        Ok(_) => Check::ok("FUSE io_uring", "available and switched off; this version does not use it yet"),
        Err(_) => Check::ok("FUSE io_uring", "not in this kernel; this version does not use it yet"),
    }
}
