//! The bytes of the kernel's messages belong to `fuse-protocol`: other doors read them through its names, not by numbers.
//!
//! The check looks for byte ranges and indexes that are written as numbers. A number below 4 alone is no offset: it may be the index
//! of a list.

use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprIndex, ExprMethodCall, ExprRange, GenericArgument, ItemConst, Lit, Local, Pat};

use crate::ratchet::Findings;
use crate::sources::Sources;

/// Crates that handle messages and are not to know their bytes.
const DOORS: [&str; 3] = ["fuse", "relay", "relay-server"];
/// Below this a lone number may be the index of a list.
const INDEX_MIN: u64 = 4;
/// Methods that take a range or a place in bytes.
const METHODS: [&str; 8] =
    ["get", "get_mut", "split_at", "split_at_mut", "split_at_checked", "split_off", "copy_within", "drain"];
/// Methods that take a number of bytes as a generic argument.
const CHUNKS: [&str; 4] = ["first_chunk", "last_chunk", "split_first_chunk", "split_last_chunk"];
/// Beginnings of names of functions that read a number at a place.
const READERS: [&str; 6] = ["read_u", "read_i", "get_u", "get_i", "u32_at", "u64_at"];

/// Finds numbers that are offsets into messages.
pub fn check(sources: &Sources) -> Findings {
    let mut findings = Findings::default();
    for file in sources.product().files.iter().filter(|file| DOORS.contains(&file.krate.as_str())) {
        let mut search = Search::default();
        search.visit_file(&file.ast);
        for (line, what) in search.found {
            findings.add(&file.path, line, what);
        }
    }
    findings
}

#[derive(Default)]
struct Search {
    found: Vec<(usize, String)>,
    /// Closures that read at the place they are given.
    readers: BTreeSet<String>,
}

impl Search {
    fn add(&mut self, place: &impl Spanned, what: String) {
        self.found.push((place.span().start().line, what));
    }
}

/// Whether an expression is a number, or a sum with one.
fn has_number(expression: &Expr, min: u64) -> bool {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse::<u64>().is_ok_and(|number| number >= min),
            _ => false,
        },
        Expr::Binary(sum) => has_number(&sum.left, 1) || has_number(&sum.right, 1),
        Expr::Paren(inner) => has_number(&inner.expr, min),
        Expr::Cast(cast) => has_number(&cast.expr, min),
        _ => false,
    }
}

fn is_of_numbers(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Int(_)),
        Expr::Binary(sum) => is_of_numbers(&sum.left) && is_of_numbers(&sum.right),
        _ => false,
    }
}

/// Whether an index is a range with a number at an end, or a number too large for a list.
fn is_place(index: &Expr) -> bool {
    match index {
        Expr::Range(ExprRange { start, end, .. }) => {
            [start, end].into_iter().flatten().any(|bound| has_number(bound, 1))
        }
        Expr::Lit(_) => has_number(index, INDEX_MIN),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Search {
    fn visit_expr_index(&mut self, index: &'ast ExprIndex) {
        if is_place(&index.index) {
            self.add(index, "bytes of a message are indexed by a number".to_owned());
        }
        visit::visit_expr_index(self, index);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let method = call.method.to_string();
        let takes_place = METHODS.contains(&method.as_str()) && call.args.first().is_some_and(is_place);
        let generic = call.turbofish.iter().flat_map(|generics| &generics.args);
        let takes_number = CHUNKS.contains(&method.as_str())
            && generic.into_iter().any(|argument| matches!(argument, GenericArgument::Const(Expr::Lit(_))));
        let reads = is_reader(&method) && call.args.iter().any(|argument| has_number(argument, 1));
        if takes_place || takes_number || reads {
            self.add(&call.method, format!("`{method}` is given the place of bytes as a number"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(function) = &*call.func
            && let Some(name) = function.path.segments.last().map(|segment| segment.ident.to_string())
            && (is_reader(&name) || self.readers.contains(&name))
            && call.args.iter().any(|argument| has_number(argument, 1))
        {
            self.add(call, format!("`{name}` is given the place of bytes as a number"));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let before = self.found.len();
        visit::visit_local(self, local);
        if let (Pat::Ident(name), Some(init)) = (&local.pat, &local.init)
            && matches!(*init.expr, Expr::Closure(_))
            && self.found.len() > before
        {
            self.readers.insert(name.ident.to_string());
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        let name = item.ident.to_string();
        if (name.ends_with("_AT") || name.ends_with("_OFFSET")) && is_of_numbers(&item.expr) {
            self.add(&item.ident, format!("`{name}` is the place of a field; name it in fuse-protocol"));
        }
        visit::visit_item_const(self, item);
    }
}

fn is_reader(name: &str) -> bool {
    READERS.iter().any(|reader| name.starts_with(reader))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(krate: &str, body: &str) -> usize {
        let text = format!("fn f(b: &mut [u8], at: usize) {{ {body}; }}\n");
        check(&Sources::of(&[(&format!("crates/doors/{krate}/src/lib.rs"), &text)])).list.len()
    }

    fn found(body: &str) -> usize {
        found_in("relay", body)
    }

    #[test]
    fn ranges_and_places_in_numbers_are_findings() {
        let bodies = [
            "g(&b[8..16])",
            "u64::from_ne_bytes(b[16..24].try_into().unwrap())",
            "b.get(24..)",
            "b.get(60)",
            "b.get(at..at + 4)",
            "read_u32(at + 4)",
            "b.read_u64(40)",
            "b.first_chunk::<4>()",
            "b.split_at(40)",
            "const MODE_AT: usize = 16 + 40",
        ];
        for body in bodies {
            assert_eq!(found(body), 1, "{body}");
        }
    }

    #[test]
    fn a_closure_that_reads_at_a_place_gives_away_its_numbers() {
        assert_eq!(found("let half = |at: usize| b.get(at..at + 4); half(72); half(HANDLE)"), 2);
    }

    #[test]
    fn names_lists_and_the_protocol_itself_are_none() {
        for body in [
            "g(&b[FIELD])",
            "b[0]",
            "b[at]",
            "b.get(..HEAD_BYTES)",
            "b.get(1)",
            "let z = [0; 16]",
            "b[..]",
            "c.get(&70)",
        ] {
            assert_eq!(found(body), 0, "{body}");
        }
        assert_eq!(found_in("fuse-protocol", "g(&b[8..16])"), 0);
    }
}
