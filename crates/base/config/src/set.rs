//! The keys that were set in one place: on a command line, for one directory, or in a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::keys::{KEYS, KeyError, key};
use crate::policy::Policy;

/// A subset of the keys with valid values, stored as canonical text. Serialised as a TOML table of strings, for example
/// `cache = "preload"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySet(BTreeMap<&'static str, String>);

impl PolicySet {
    /// Creates a set that contains no key.
    pub fn new() -> PolicySet {
        PolicySet::default()
    }

    /// Parses `KEY=VALUE` items; a later item overrides an earlier one. Errors: [`KeyError`] for the first invalid
    /// item.
    pub fn parse<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<PolicySet, KeyError> {
        let mut set = PolicySet::new();
        for item in items {
            let (name, value) = item.split_once('=').ok_or_else(|| KeyError::Shape { text: item.to_string() })?;
            set.set(name.trim(), value.trim())?;
        }
        Ok(set)
    }

    /// Sets a key and replaces its previous value. On an error the set is unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), KeyError> {
        let key = key(name)?;
        let mut policy = Policy::default();
        (key.read)(&mut policy, value).map_err(|reason| KeyError::Value {
            name: key.name,
            reason,
            syntax: key.syntax,
        })?;
        self.0.insert(key.name, (key.write)(&policy));
        Ok(())
    }

    /// Removes a key and returns whether the set contained it. Errors: an unknown name, so that a mistyped key is
    /// noticed.
    pub fn unset(&mut self, name: &str) -> Result<bool, KeyError> {
        Ok(self.0.remove(key(name)?.name).is_some())
    }

    /// Returns the value of a key, if this set contains one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns whether the set contains no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys and values, in the order of [`KEYS`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        KEYS.iter().filter_map(|key| self.get(key.name).map(|value| (key.name, value)))
    }

    /// Adds the keys of `other`; the values of `other` override those of this set.
    pub fn extend(&mut self, other: &PolicySet) {
        self.0.extend(other.0.iter().map(|(name, value)| (*name, value.clone())));
    }

    /// Returns `base` with the values of this set put over it.
    pub fn apply(&self, base: Policy) -> Policy {
        let mut policy = base;
        for key in &KEYS {
            if let Some(value) = self.get(key.name) {
                // Values were parsed before they were stored. If one failed now, `base`'s value would remain.
                let _ = (key.read)(&mut policy, value);
            }
        }
        policy
    }

    /// Creates a set of every key with its value in `policy`.
    pub fn of(policy: &Policy) -> PolicySet {
        PolicySet(KEYS.iter().map(|key| (key.name, (key.write)(policy))).collect())
    }

    /// Formats the set as a TOML table.
    pub fn to_toml(&self) -> String {
        self.iter().map(|(name, value)| format!("{name} = {}\n", toml::Value::String(value.to_string()))).collect()
    }

    /// Parses a TOML table of strings; plain numbers are accepted too. Errors: a sentence for the user.
    pub fn from_toml(text: &str) -> Result<PolicySet, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_string())?;
        let mut set = PolicySet::new();
        for (name, value) in &table {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            set.set(name, &text).map_err(|e| e.to_string())?;
        }
        Ok(set)
    }
}

impl Serialize for PolicySet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for PolicySet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PolicySet, D::Error> {
        let pairs: BTreeMap<String, String> = BTreeMap::deserialize(deserializer)?;
        let mut set = PolicySet::new();
        for (name, value) in &pairs {
            set.set(name, value).map_err(serde::de::Error::custom)?;
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::{Cache, StageOut};

    #[test]
    fn a_set_changes_what_it_names_and_nothing_else() {
        let set = PolicySet::parse(["cache=preload", "stage_out = idle:5m"]).unwrap();
        let policy = set.apply(Policy::default());
        assert_eq!(policy.cache, Cache::Preload);
        assert_eq!(policy.stage_out, StageOut::Idle(Duration::from_secs(300)));
        assert_eq!(policy.verify, Policy::default().verify);
        assert_eq!(set.iter().collect::<Vec<_>>(), [("cache", "preload"), ("stage_out", "idle:5m")]);
    }

    #[test]
    fn values_are_kept_as_they_are_written_back() {
        let mut set = PolicySet::new();
        set.set("keep_after", "3600s").unwrap();
        assert_eq!(set.get("keep_after"), Some("1h"));
        assert!(set.unset("keep_after").unwrap());
        assert!(!set.unset("keep_after").unwrap());
        assert!(set.unset("keep_aftr").is_err());
    }

    #[test]
    fn a_refused_value_leaves_the_set_as_it_was() {
        let mut set = PolicySet::parse(["cache=through"]).unwrap();
        let error = set.set("cache", "fast").unwrap_err().to_string();
        assert!(error.contains("both|write-cache"), "{error}");
        assert_eq!(set.get("cache"), Some("through"));
        assert!(matches!(PolicySet::parse(["cache"]), Err(KeyError::Shape { .. })));
    }

    #[test]
    fn the_inner_directory_wins_over_the_outer() {
        let mut set = PolicySet::parse(["cache=preload", "verify=full"]).unwrap();
        set.extend(&PolicySet::parse(["cache=through"]).unwrap());
        assert_eq!(set.get("cache"), Some("through"));
        assert_eq!(set.get("verify"), Some("full"));
    }

    #[test]
    fn toml_and_back_is_the_same_set() {
        let all = PolicySet::of(&Policy::default());
        assert_eq!(all.iter().count(), KEYS.len());
        assert_eq!(PolicySet::from_toml(&all.to_toml()), Ok(all.clone()));
        assert_eq!(all.apply(Policy::default()), Policy::default());
        let json: PolicySet = toml::from_str(&toml::to_string(&all).unwrap()).unwrap();
        assert_eq!(json, all);
        assert!(PolicySet::from_toml("cahce = \"both\"").unwrap_err().contains("did you mean `cache`"));
        assert!(PolicySet::from_toml("cache = ").is_err());
    }
}
