//! Imports point down the picture, or into `base`.

use std::collections::BTreeMap;

use crate::report::Report;
use crate::sources::{Sources, crate_name, dependencies};

pub const FILE: &str = "layers.toml";
const BASE: &str = "base";
const PROOF: &str = "proof";
/// The crate of these checks: it belongs to no layer and imports none.
const OUTSIDE: &str = "xtask";

struct Layers {
    /// Crate to (height of its layer from the top, layer name).
    place: BTreeMap<String, (usize, String)>,
    exceptions: Vec<(String, String)>,
    /// Edges that would point down and are refused nevertheless.
    forbidden: Vec<(String, String)>,
}

/// Checks each manifest against `layers.toml`.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    let Some(layers) = parse(sources, &mut report) else { return report };
    let mut used = vec![false; layers.exceptions.len()];
    for (directory, manifest) in sources.manifests() {
        let Some(name) = crate_name(&manifest) else { continue };
        if name == OUTSIDE {
            continue;
        }
        let Some((_, layer)) = layers.place.get(name) else {
            report.error(format!("{directory}: `{name}` is in no layer of {FILE}"));
            continue;
        };
        for to in dependencies(&manifest, "dependencies") {
            if !layers.allows(name, to, &mut used) {
                report.error(format!("{directory}: `{name}` ({layer}) must not import `{to}`; see {FILE}"));
            }
        }
    }
    for (position, (from, to)) in layers.exceptions.iter().enumerate() {
        if !used[position] {
            report.error(format!("{FILE}: the exception from `{from}` to `{to}` is not used"));
        }
    }
    report
}

impl Layers {
    fn allows(&self, from: &str, to: &str, used: &mut [bool]) -> bool {
        let (Some((from_height, from_layer)), Some((to_height, to_layer))) = (self.place.get(from), self.place.get(to))
        else {
            return true; // an outside crate: the dependencies check has a word on it
        };
        if self.forbidden.iter().any(|edge| edge.0 == from && edge.1 == to) {
            return false;
        }
        if let Some(position) = self.exceptions.iter().position(|edge| edge.0 == from && edge.1 == to) {
            used[position] = true;
            return true;
        }
        to_layer != PROOF && from_layer != to_layer && (to_height > from_height || to_layer == BASE)
    }
}

fn parse(sources: &Sources, report: &mut Report) -> Option<Layers> {
    let text = sources.file(FILE).or_else(|| {
        report.error(format!("{FILE} is missing"));
        None
    })?;
    let table: toml::Table = text.parse().map_err(|error| report.error(format!("{FILE}: {error}"))).ok()?;
    let mut layers = Layers { place: BTreeMap::new(), exceptions: Vec::new(), forbidden: Vec::new() };
    for (height, layer) in list(&table, "layer").enumerate() {
        let name = layer.get("name").and_then(|name| name.as_str()).unwrap_or_default();
        for member in layer.get("crates").and_then(|crates| crates.as_array()).into_iter().flatten() {
            layers.place.insert(member.as_str().unwrap_or_default().to_owned(), (height, name.to_owned()));
        }
    }
    for exception in list(&table, "exception") {
        let word = |key: &str| exception.get(key).and_then(|word| word.as_str()).unwrap_or_default().to_owned();
        if word("reason").is_empty() {
            report.error(format!("{FILE}: the exception from `{}` to `{}` gives no reason", word("from"), word("to")));
        }
        layers.exceptions.push((word("from"), word("to")));
    }
    for edge in list(&table, "forbidden") {
        let to = edge.get("to").and_then(|to| to.as_str()).unwrap_or_default();
        let from = edge.get("from").and_then(|from| from.as_array()).into_iter().flatten();
        layers.forbidden.extend(from.filter_map(|from| Some((from.as_str()?.to_owned(), to.to_owned()))));
    }
    Some(layers)
}

pub fn list<'a>(table: &'a toml::Table, key: &str) -> impl Iterator<Item = &'a toml::Value> {
    table.get(key).and_then(|list| list.as_array()).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &str = r#"
        layer = [
            { name = "doors", crates = ["door", "window-door"] },
            { name = "agent", crates = ["agent"] },
            { name = "base", crates = ["types"] },
            { name = "proof", crates = ["testkit"] },
        ]
    "#;

    fn errors(layers: &str, from: &str, to: &str) -> Vec<String> {
        let manifest = format!("package.name = '{from}'\ndependencies.{to}.workspace = true");
        check(&Sources::of(&[(FILE, layers), ("crates/x/Cargo.toml", &manifest)])).errors().to_vec()
    }

    #[test]
    fn an_import_may_point_down_or_into_base() {
        assert!(errors(LAYERS, "door", "agent").is_empty());
        assert!(errors(LAYERS, "agent", "types").is_empty());
        assert!(errors(LAYERS, "testkit", "types").is_empty());
        assert!(errors(LAYERS, "agent", "an-outside-crate").is_empty());
    }

    #[test]
    fn an_import_up_or_sideways_is_an_error() {
        assert_eq!(errors(LAYERS, "agent", "door").len(), 1);
        assert_eq!(errors(LAYERS, "door", "window-door").len(), 1);
        assert_eq!(errors(LAYERS, "types", "agent").len(), 1);
        assert_eq!(errors(LAYERS, "agent", "testkit").len(), 1);
    }

    #[test]
    fn an_exception_allows_its_edge_and_must_be_used_and_reasoned() {
        let with =
            |reason: &str| format!("{LAYERS}\n[[exception]]\nfrom = 'door'\nto = 'window-door'\nreason = '{reason}'");
        assert!(errors(&with("because"), "door", "window-door").is_empty());
        assert_eq!(errors(&with(""), "door", "window-door").len(), 1);
        assert_eq!(errors(&with("because"), "door", "agent").len(), 1);
    }

    #[test]
    fn a_forbidden_edge_is_an_error_although_it_points_down() {
        let with = |to: &str| format!("{LAYERS}\n[[forbidden]]\nfrom = ['window-door', 'door']\nto = '{to}'");
        assert_eq!(errors(&with("agent"), "door", "agent").len(), 1);
        assert!(errors(&with("types"), "door", "agent").is_empty());
    }

    #[test]
    fn a_crate_of_no_layer_is_an_error() {
        assert_eq!(errors(LAYERS, "stranger", "types").len(), 1);
    }
}
