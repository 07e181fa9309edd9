//! A trait is a seam: whoever implements it, a test double too, must know all its methods. So traits stay narrow.
//!
//! Several traits may form one seam. `layers.toml` can bound their methods together:
//!
//! ```toml
//! [[seam]]
//! name = "data-store"
//! traits = ["global-store::GlobalStore", "global-store::OpenFile"]
//! methods_max = 40
//! ```

use syn::visit::Visit;
use syn::{ItemFn, ItemTrait, TraitItem, Visibility};

use crate::layers;
use crate::ratchet::{FILE, Findings};
use crate::sources::Sources;

/// Methods of one trait.
const METHODS_MAX: usize = 12;

/// One trait that other modules can see.
struct Trait<'a> {
    path: &'a str,
    line: usize,
    /// `crate::Name`.
    name: String,
    methods: usize,
}

/// Finds traits and seams with too many methods.
pub fn check(sources: &Sources) -> Findings {
    let mut findings = Findings::default();
    let traits = traits(sources);
    let table = sources.toml(FILE);
    let mut wide = Vec::new();
    for exception in layers::list(&table, "wide_trait") {
        let word = |key: &str| exception.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        if word("reason").is_empty() {
            findings.add(FILE, 1, format!("the exception for the trait `{}` gives no reason", word("name")));
        }
        if !traits.iter().any(|found| found.name == word("name") && found.methods > METHODS_MAX) {
            findings.add(FILE, 1, format!("the exception for the trait `{}` is not used", word("name")));
        }
        wide.push(word("name"));
    }
    let is_wide = |found: &&Trait<'_>| found.methods > METHODS_MAX && !wide.contains(&found.name.as_str());
    for found in traits.iter().filter(is_wide) {
        let what = format!("`{}` has {} methods, at most {METHODS_MAX}", found.name, found.methods);
        findings.add(found.path, found.line, what);
    }
    let layers = sources.toml(layers::FILE);
    for seam in layers::list(&layers, "seam") {
        check_seam(seam, &traits, &mut findings);
    }
    findings
}

fn check_seam(seam: &toml::Value, traits: &[Trait<'_>], findings: &mut Findings) {
    let name = seam.get("name").and_then(toml::Value::as_str).unwrap_or_default();
    let Some(max) = seam.get("methods_max").and_then(toml::Value::as_integer) else {
        return findings.add(layers::FILE, 1, format!("the seam `{name}` has no number `methods_max`"));
    };
    let mut methods = 0;
    for member in seam.get("traits").and_then(toml::Value::as_array).into_iter().flatten() {
        let member = member.as_str().unwrap_or_default();
        match traits.iter().find(|found| found.name == member) {
            Some(found) => methods += found.methods,
            None => findings.add(layers::FILE, 1, format!("the seam `{name}` names `{member}`, which is no trait")),
        }
    }
    if i64::try_from(methods).is_ok_and(|methods| methods > max) {
        findings.add(layers::FILE, 1, format!("the seam `{name}` has {methods} methods, at most {max}"));
    }
}

fn traits(sources: &Sources) -> Vec<Trait<'_>> {
    let mut traits = Vec::new();
    for file in &sources.product().files {
        let mut search = Search(Vec::new());
        search.visit_file(&file.ast);
        traits.extend(search.0.into_iter().map(|(line, name, methods)| Trait {
            path: &file.path,
            line,
            name: format!("{}::{name}", file.krate),
            methods,
        }));
    }
    traits
}

/// Line, name and number of methods of each visible trait.
struct Search(Vec<(usize, String, usize)>);

impl<'ast> Visit<'ast> for Search {
    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if !matches!(item.vis, Visibility::Inherited) {
            // A macro in a trait may define methods as well.
            let methods = item.items.iter().map(|item| match item {
                TraitItem::Fn(_) => 1,
                TraitItem::Macro(item) => {
                    item.mac.tokens.clone().into_iter().filter(|token| token.to_string() == "fn").count()
                }
                _ => 0,
            });
            let methods = methods.sum();
            self.0.push((item.ident.span().start().line, item.ident.to_string(), methods));
        }
    }

    fn visit_item_fn(&mut self, _: &'ast ItemFn) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(visibility: &str, name: &str, methods: usize) -> String {
        let methods: String = (0..methods).map(|number| format!("fn f{number}(&self);")).collect();
        format!("{visibility} trait {name} {{ const C: u8; type T; {methods} }}\n")
    }

    fn found(code: &str, layers: &str) -> Vec<String> {
        let sources = Sources::of(&[("crates/x/a/src/lib.rs", code), (layers::FILE, layers)]);
        check(&sources).list.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_trait_with_more_than_twelve_methods_is_a_finding() {
        assert_eq!(found(&of("pub", "B", 13), ""), ["`a::B` has 13 methods, at most 12"]);
        assert_eq!(found(&of("pub(crate)", "B", 13), "").len(), 1);
        let list =
            |methods: usize| format!("pub trait B {{ fn a(&self); list! {{ {} }} }}", "fn b(&self);".repeat(methods));
        assert_eq!((found(&list(12), "").len(), found(&list(11), "").len()), (1, 0));
    }

    #[test]
    fn an_exception_allows_a_wide_trait_and_must_be_used_and_reasoned() {
        let with = |name: &str, reason: &str| {
            let table = format!("[[wide_trait]]\nname = 'a::{name}'\nreason = '{reason}'\n");
            let code = of("pub", "B", 13) + &of("pub", "C", 12);
            let sources = Sources::of(&[("crates/x/a/src/lib.rs", &code), (layers::FILE, ""), (FILE, &table)]);
            check(&sources).list.len()
        };
        assert_eq!((with("B", "a table"), with("B", "")), (0, 1));
        assert_eq!(with("C", "narrow"), 2, "not used, and `B` is wide");
    }

    #[test]
    fn a_narrow_trait_a_private_one_and_one_of_tests_are_none() {
        let tests = format!("#[cfg(test)]\nmod tests {{ {} }}", of("pub", "D", 13));
        assert!(found(&[of("pub", "B", 12), of("", "C", 13), tests].concat(), "").is_empty());
    }

    #[test]
    fn a_seam_bounds_the_methods_of_its_traits_together() {
        let code = of("pub", "B", 10) + &of("pub", "C", 10);
        let seam = |max| format!("[[seam]]\nname = 'store'\ntraits = ['a::B', 'a::C']\nmethods_max = {max}\n");
        assert!(found(&code, &seam(20)).is_empty());
        assert_eq!(found(&code, &seam(19)), ["the seam `store` has 20 methods, at most 19"]);
    }

    #[test]
    fn a_seam_names_existing_traits_and_a_number() {
        assert_eq!(found("", "[[seam]]\nname = 'store'\ntraits = ['a::B']\nmethods_max = 3\n").len(), 1);
        assert_eq!(found("", "[[seam]]\nname = 'store'\ntraits = []\n").len(), 1);
    }
}
