//! Documentation comments of public items.
//!
//! Public is what `pub` marks: items, fields and methods, the variants of an enum, the methods of a trait, and modules themselves.

use syn::visit::{self, Visit};
use syn::{
    AttrStyle, Attribute, Field, ImplItemConst, ImplItemFn, ItemConst, ItemEnum, ItemFn, ItemMod, ItemStatic,
    ItemStruct, ItemTrait, ItemType, ItemUnion, Variant, Visibility,
};

use crate::product::text_of;

/// One comment, in Markdown.
#[derive(Debug, PartialEq, Eq)]
pub struct Comment {
    /// Line of its first line, from 1.
    pub line: usize,
    pub text: String,
}

/// Reads the comments of one file.
pub fn public_comments(file: &syn::File) -> Vec<Comment> {
    let mut search = Search { public: true, in_variant: false, last: None, found: Vec::new() };
    search.visit_file(file);
    search.found
}

struct Search {
    public: bool,
    /// Fields of a variant are as public as their enum.
    in_variant: bool,
    /// Line of the last line of a comment, and whether it is one of `//!`.
    last: Option<(usize, bool)>,
    found: Vec<Comment>,
}

impl Search {
    fn within(&mut self, public: bool, visit: impl FnOnce(&mut Search)) {
        let before = std::mem::replace(&mut self.public, public);
        visit(self);
        self.public = before;
    }

    fn item(&mut self, visibility: &Visibility, visit: impl FnOnce(&mut Search)) {
        self.within(matches!(visibility, Visibility::Public(_)), visit);
    }
}

/// Overrides the visits of items that have a visibility of their own.
macro_rules! items {
    ($($visit:ident: $item:ident),* $(,)?) => {
        $(fn $visit(&mut self, item: &'ast $item) {
            self.item(&item.vis, |search| visit::$visit(search, item));
        })*
    };
}

impl<'ast> Visit<'ast> for Search {
    items! {
        visit_item_const: ItemConst,
        visit_item_enum: ItemEnum,
        visit_item_fn: ItemFn,
        visit_item_mod: ItemMod,
        visit_item_static: ItemStatic,
        visit_item_struct: ItemStruct,
        visit_item_trait: ItemTrait,
        visit_item_type: ItemType,
        visit_item_union: ItemUnion,
        visit_impl_item_const: ImplItemConst,
        visit_impl_item_fn: ImplItemFn,
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        self.in_variant = true;
        visit::visit_variant(self, variant);
        self.in_variant = false;
    }

    fn visit_field(&mut self, field: &'ast Field) {
        let public = self.public && (self.in_variant || matches!(field.vis, Visibility::Public(_)));
        self.within(public, |search| visit::visit_field(search, field));
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Some(text) = attribute.path().is_ident("doc").then(|| text_of(attribute)).flatten() else { return };
        let line = attribute.pound_token.span.start().line;
        let inner = matches!(attribute.style, AttrStyle::Inner(_));
        let goes_on = self.last == Some((line - 1, inner));
        self.last = Some((line, inner));
        // The first comment of a file tells its purpose to every reader.
        if !self.public && !inner {
            return;
        }
        match self.found.last_mut().filter(|_| goes_on) {
            Some(comment) => comment.text.extend(["\n", text.as_str()]),
            None => self.found.push(Comment { line, text }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<(usize, String)> {
        let file = syn::parse_file(code).unwrap();
        public_comments(&file).into_iter().map(|comment| (comment.line, comment.text)).collect()
    }

    #[test]
    fn comments_of_public_items_are_read_whole() {
        let code =
            "//! A file.\n//! Its rest.\n\n/// One.\n/// Two.\npub struct A {\n    /// Three.\n    pub b: u8,\n}\n";
        let expected = [(1, " A file.\n Its rest."), (4, " One.\n Two."), (7, " Three.")];
        assert_eq!(found(code), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn variants_and_methods_of_public_types_are_public() {
        let code = "pub enum A {\n/// One.\nB {\n/// Two.\nc: u8 } }\npub trait T {\n/// Three.\nfn f(); }\nimpl A {\n/// Four.\npub fn g() {} }\n";
        assert_eq!(found(code).len(), 4);
    }

    #[test]
    fn comments_of_private_items_are_left_out() {
        let code = "/// One.\nstruct A {\n/// Two.\npub b: u8 }\nimpl A {\n/// Three.\nfn f() {} }\npub struct B {\n/// Four.\nc: u8 }\n/// Five.\npub(crate) fn g() {}\n";
        assert!(found(code).is_empty());
    }
}
