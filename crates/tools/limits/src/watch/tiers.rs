//! Forebay's status, if it runs: `forebay status --json`, which asks each agent's control socket.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    pub directory: PathBuf,
    pub burst_buffer: PathBuf,
    /// Counters when the agent was first seen.
    first: BTreeMap<String, u64>,
    /// Counters when the agent was last seen.
    last: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tiers {
    /// Agents by directory, agent process and burst buffer.
    agents: BTreeMap<String, Tier>,
    /// Whether agents have been asked once, before the program began. Agents seen then count from their first values,
    /// later ones from zero.
    begun: bool,
    /// Mount table at the last request: a new agent comes with a mount.
    #[serde(skip)]
    mounts: String,
}

impl Tier {
    /// Returns whether reads may be waiting for the global store.
    pub fn is_fetching(&self) -> bool {
        self.now("fetching") + self.now("through") > 0
    }

    fn now(&self, key: &str) -> u64 {
        self.last.get(key).copied().unwrap_or(0)
    }

    /// Returns the growth of a counter since the agent was first seen.
    pub fn grown(&self, key: &str) -> u64 {
        self.now(key).saturating_sub(self.first.get(key).copied().unwrap_or(0))
    }

    /// Returns the bytes still to be staged out.
    pub fn dirty_bytes(&self) -> u64 {
        self.now("dirty_bytes")
    }
}

impl Tiers {
    /// Asks every agent that this namespace knows.
    ///
    /// Does nothing if Forebay is not installed or not running. Starts no process if no agent was seen and nothing has
    /// been mounted since.
    pub fn ask(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if self.begun && self.agents.is_empty() && mounts == self.mounts {
            return;
        }
        self.mounts = mounts;
        let Some(program) = forebay() else { return };
        let mut command = Command::new(program);
        command.args(["status", "--json"]).stdin(Stdio::null()).stderr(Stdio::null());
        if let Ok(output) = command.output() {
            self.learn(&String::from_utf8_lossy(&output.stdout));
        }
        self.begun = true;
    }

    /// Adds the agents of one reply; unknown content is ignored.
    pub fn learn(&mut self, answer: &str) {
        let Ok(Value::Array(agents)) = serde_json::from_str(answer) else { return };
        for agent in agents {
            let text = |key: &str| agent[key].as_str().map(PathBuf::from);
            let (Some(directory), Some(burst_buffer)) = (text("dir"), text("burst_buffer")) else { continue };
            let Some(status) = agent["status"].as_object() else { continue };
            let counters = status.iter().filter_map(|(key, value)| Some((key.clone(), value.as_u64()?)));
            let counters: BTreeMap<String, u64> = counters.collect();
            let key = format!("{} {} {}", directory.display(), agent["agent"], burst_buffer.display());
            match self.agents.get_mut(&key) {
                Some(known) => known.last = counters,
                None => {
                    // The counters of an agent that started with the program belong to the program entirely.
                    let first = if self.begun { BTreeMap::new() } else { counters.clone() };
                    self.agents.insert(key, Tier { directory, burst_buffer, first, last: counters });
                }
            }
        }
    }

    /// Returns the agent that serves a path.
    pub fn of(&self, path: &Path) -> Option<&Tier> {
        self.agents
            .values()
            .filter(|tier| path.starts_with(&tier.directory))
            .max_by_key(|tier| tier.directory.as_os_str().len())
    }

    pub fn all(&self) -> impl Iterator<Item = &Tier> {
        self.agents.values()
    }
}

/// Returns the path of the `forebay` program beside this one, which may be this one.
fn forebay() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join("forebay");
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(agent: u64, bytes: u64) -> String {
        format!(
            r#"[{{"agent":{agent},"burst_buffer":"/bb","dir":"/d","status":{{"staged_in_bytes":{bytes},"xattrs":true,"stuck":[]}}}}]"#
        )
    }

    #[test]
    fn counters_grow_from_what_was_there_before_and_from_nothing_for_an_agent_that_came_later() {
        let mut tiers = Tiers::default();
        tiers.learn(&answer(1, 100));
        tiers.begun = true;
        tiers.learn(&answer(1, 150));
        tiers.learn(&answer(2, 70));
        tiers.learn("no JSON");
        assert_eq!(tiers.all().map(|tier| tier.grown("staged_in_bytes")).collect::<Vec<_>>(), [50, 70]);
        assert!(tiers.of(Path::new("/d/x")).is_some() && tiers.of(Path::new("/dx")).is_none());
    }
}
