//! Modules that use each other in a circle can only be read together, so circles stay small.

use crate::modules::Graph;
use crate::ratchet::Findings;
use crate::sources::Sources;

/// Modules of one circle.
const MODULES_MAX: usize = 3;
/// Lines of all modules of one circle, without tests.
const LINES_MAX: usize = 1_200;

/// Finds the circles of each crate that are too large.
pub fn check(sources: &Sources) -> Findings {
    let mut findings = Findings::default();
    let product = sources.product();
    for krate in product.crates() {
        let graph = Graph::of(product, krate);
        let place = product.files_of(krate).find(|file| file.module.is_empty()).or(product.files_of(krate).next());
        let place = place.map_or(krate, |file| file.path.as_str());
        for circle in circles(&graph) {
            let lines: usize = circle.iter().map(|node| graph.lines[*node]).sum();
            if circle.len() > MODULES_MAX || lines > LINES_MAX {
                let names: Vec<&str> = circle.iter().map(|node| graph.names[*node].as_str()).collect();
                let what = format!(
                    "a circle of {} modules and {lines} lines, at most {MODULES_MAX} and {LINES_MAX}: {}",
                    names.len(),
                    names.join(", ")
                );
                findings.add(place, 1, format!("{krate}: {what}"));
                note_edges(&graph, &circle, krate, &mut findings);
            }
        }
    }
    findings
}

fn note_edges(graph: &Graph, circle: &[usize], krate: &str, findings: &mut Findings) {
    for ((from, to), edge) in &graph.edges {
        if circle.contains(from) && circle.contains(to) {
            let (from, to) = (&graph.names[*from], &graph.names[*to]);
            findings.note(format!("{krate}: {from} -> {to}, {} uses, first {}:{}", edge.uses, edge.path, edge.line));
        }
    }
}

/// The strongly connected components of two or more modules, by Tarjan's algorithm.
fn circles(graph: &Graph) -> Vec<Vec<usize>> {
    let mut search =
        Search { graph, stack: Vec::new(), seen: vec![None; graph.names.len()], next: 0, found: Vec::new() };
    for node in 0..graph.names.len() {
        if search.seen[node].is_none() {
            search.visit(node);
        }
    }
    search.found.retain(|circle| circle.len() > 1);
    search.found.iter_mut().for_each(|circle| circle.sort_unstable());
    search.found.sort();
    search.found
}

struct Search<'a> {
    graph: &'a Graph,
    stack: Vec<usize>,
    /// Number in the order of visits; `usize::MAX` once the node's component is found.
    seen: Vec<Option<usize>>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Returns the lowest number that can be reached from `node` within its component.
    fn visit(&mut self, node: usize) -> usize {
        let number = self.next;
        self.next += 1;
        self.seen[node] = Some(number);
        self.stack.push(node);
        let mut low = number;
        for (_, to) in self.graph.edges.keys().filter(|(from, _)| *from == node) {
            low = low.min(match self.seen[*to] {
                Some(number) => number,
                None => self.visit(*to),
            });
        }
        if low == number {
            let start = self.stack.iter().position(|on_stack| *on_stack == node).expect("the node was pushed");
            let circle = self.stack.split_off(start);
            circle.iter().for_each(|member| self.seen[*member] = Some(usize::MAX));
            self.found.push(circle);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for a crate whose modules import as `from to` says, each module with so many lines more.
    fn found(edges: &[&str], lines: usize) -> Vec<String> {
        let mut files = std::collections::BTreeMap::<String, String>::new();
        for edge in edges {
            let (from, to) = edge.split_once(' ').unwrap();
            let file = |name| format!("crates/x/a/src/{name}.rs");
            *files.entry(file(from)).or_insert_with(|| "\n".repeat(lines)) += &format!("use crate::{to}::X;\n");
            files.entry(file(to)).or_insert_with(|| "\n".repeat(lines));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Sources::of(&files)).list.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_circle_of_four_modules_is_a_finding() {
        let found = found(&["b c", "c d", "d e", "e b", "f b", "e g"], 0);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("4 modules") && found[0].ends_with("b, c, d, e"), "{found:?}");
    }

    #[test]
    fn a_circle_of_three_small_modules_and_a_chain_are_none() {
        assert!(found(&["b c", "c d", "d b"], 100).is_empty());
        assert!(found(&["b c", "c d", "d e", "e f", "b f"], 2_000).is_empty());
    }

    #[test]
    fn a_circle_of_two_long_modules_is_a_finding() {
        assert_eq!(found(&["b c", "c b"], 600).len(), 1);
        assert!(found(&["b c", "c b"], 590).is_empty());
    }

    #[test]
    fn two_circles_that_meet_are_one() {
        assert_eq!(found(&["b c", "c b", "c d", "d c", "d e", "e d"], 0).len(), 1);
        assert!(found(&["b c", "c b", "c d", "d e", "e d"], 0).is_empty());
    }
}
