//! Data of a user that is removed with the user's batch job or last login.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Environment variables of batch systems' jobs: Slurm, PBS, LSF, Flux, OAR, Cobalt, Fujitsu's, Grid Engine,
/// LoadLeveler, Moab.
const JOB: [&str; 10] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "OAR_JOB_ID",
    "COBALT_JOBID",
    "PJM_JOBID",
    "JOB_ID",
    "LOADL_STEP_ID",
    "MOAB_JOBID",
];
/// Names of batch systems' control groups, for jobs whose environment was cleaned: Slurm, PBS, LSF, HTCondor, Grid
/// Engine.
const GROUPS: [&str; 5] = ["slurm", "pbs", "lsf", "htcondor", "sge"];
/// Beginnings of the rest of such a name.
const SUFFIXES: [&str; 5] = [".", "_", "-", "stepd", "pro"];
/// First number of ordinary users. Lower ones are the system's, and logind leaves their data alone.
const FIRST_USER: u32 = 1000;

/// Describes the batch job in which this process runs, if any.
pub fn job() -> Option<String> {
    let told = JOB.iter().find(|name| std::env::var_os(name).is_some()).map(|name| format!("{name} is set"));
    told.or_else(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        group_of_job(&groups).map(|name| format!("its control group is {name}'s"))
    })
}

/// Returns the batch system whose name is a part of a path in `/proc/self/cgroup`, alone or with a suffix.
fn group_of_job(groups: &str) -> Option<&'static str> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut parts = paths.flat_map(|path| path.split('/'));
    parts.find_map(|part| {
        let is_of = |name: &&&str| {
            let begins = |rest: &str| SUFFIXES.iter().any(|suffix| rest.starts_with(suffix));
            part.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || begins(rest))
        };
        GROUPS.iter().find(is_of).copied()
    })
}

/// Returns whether the data of `uid` in `/dev/shm` is removed when the user's last login ends: `RemoveIPC` of
/// systemd's logind, if that runs. `root`: `/`.
pub fn is_cleared_at_logout(uid: u32, root: &Path) -> bool {
    uid >= FIRST_USER && root.join("run/systemd/seats").exists() && removes_ipc(root)
}

/// Reads `RemoveIPC` from logind's settings. The last entry counts, and fragments override the main file. Without an
/// entry, a distribution's default may stand in the file as a comment; otherwise the default is yes.
fn removes_ipc(root: &Path) -> bool {
    let of = |dir: &str| root.join(dir).join("systemd");
    let dirs = ["usr/lib", "usr/local/lib", "run", "etc"].map(of);
    let file = dirs.iter().rev().find_map(|dir| fs::read_to_string(dir.join("logind.conf")).ok()).unwrap_or_default();
    // Of fragments with the same name, the one in `/etc` counts.
    let mut fragments = BTreeMap::new();
    for dir in &dirs {
        for entry in fs::read_dir(dir.join("logind.conf.d")).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|end| end == "conf") {
                fragments.insert(entry.file_name(), fs::read_to_string(entry.path()).unwrap_or_default());
            }
        }
    }
    let said = |text: &str, before: &str| {
        let of = |line: &str| {
            let rest = line.trim().strip_prefix(before)?.trim_start().strip_prefix("RemoveIPC")?;
            Some(rest.trim_start().strip_prefix('=')?.trim().to_lowercase())
        };
        text.lines().filter_map(of).next_back()
    };
    let words = fragments.values().rev().chain([&file]).find_map(|text| said(text, ""));
    let word = words.or_else(|| said(&file, "#"));
    !matches!(word.as_deref(), Some("no" | "n" | "false" | "f" | "off" | "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_known_by_its_control_group() {
        for (groups, job) in [
            ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", Some("slurm")),
            ("4:memory:/slurm/uid_1000/job_7\n0::/", Some("slurm")),
            ("0::/pbspro.slice/pbspro-7.slice", Some("pbs")),
            ("2:cpuset:/pbs_jobs.service/jobid/7", Some("pbs")),
            ("1:freezer:/lsf/cluster/job.7", Some("lsf")),
            ("0::/htcondor/condor_var_lib_execute_slot1", Some("htcondor")),
            ("0::/user.slice/user-1000.slice/session-3.scope", None),
            ("0::/system.slice/lsfoo.service/slurpy", None),
            ("", None),
        ] {
            assert_eq!(group_of_job(groups), job, "{groups}");
        }
    }

    #[test]
    fn whether_logind_clears_shared_memory_is_what_its_settings_say_last() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let cleared = || is_cleared_at_logout(1000, root);
        assert!(!cleared(), "no logind");
        fs::create_dir_all(root.join("run/systemd/seats")).unwrap();
        assert!(cleared(), "its default");
        assert!(!is_cleared_at_logout(0, root) && !is_cleared_at_logout(999, root));
        put("usr/lib/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
        assert!(!cleared(), "the distribution's default");
        put("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=yes\n");
        assert!(cleared(), "the file in /etc counts");
        put("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=yes\n RemoveIPC = no\n");
        assert!(!cleared());
        put("usr/lib/systemd/logind.conf.d/50.conf", "[Login]\nRemoveIPC=yes\n");
        assert!(cleared(), "a fragment counts more");
        put("run/systemd/logind.conf.d/60.conf", "[Login]\nRemoveIPC=off\n");
        assert!(!cleared(), "the last one");
        put("etc/systemd/logind.conf.d/60.conf", "");
        assert!(cleared(), "masked");
    }
}
