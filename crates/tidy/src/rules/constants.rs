//! Constants: a number on the medium has a unit and a source.

use syn::visit::Visit;

use crate::{Finding, Project};

/// Types whose constants are numbers.
const NUMBERS: [&str; 14] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64",
];

/// Finds numbers in a `layout.rs` whose documentation lacks `Unit:` or `Source:`.
pub fn documented(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &project.sources {
        let is_layout = source.path.ends_with("/layout.rs") || source.path.contains("/layout/");
        if is_layout && source.path.starts_with(super::rooms::ENGINES) {
            let mut constants = Constants { source, findings: &mut findings };
            constants.visit_file(&source.syntax);
        }
    }
    findings
}

struct Constants<'a> {
    source: &'a crate::Source,
    findings: &'a mut Vec<Finding>,
}

impl Constants<'_> {
    fn judge(&mut self, name: &syn::Ident, ty: &syn::Type, attributes: &[syn::Attribute]) {
        let line = name.span().start().line;
        if !is_number(ty) || self.source.in_test(line) {
            return;
        }
        let about: String = attributes.iter().filter_map(documentation).collect();
        let missing: Vec<&str> =
            ["Unit:", "Source:"].into_iter().filter(|word| !about.contains(word)).collect();
        if !missing.is_empty() {
            let missing = missing.join(" and ");
            let what = format!("`{name}` has no `{missing}` in its documentation; say it there");
            self.findings.push(Finding::new(&self.source.path, line, what));
        }
    }
}

impl<'ast> Visit<'ast> for Constants<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
    }
}

fn is_number(ty: &syn::Type) -> bool {
    let syn::Type::Path(path) = ty else { return false };
    NUMBERS.iter().any(|number| path.path.is_ident(number))
}

fn documentation(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(literal) = &pair.value else { return None };
    let syn::Lit::Str(text) = &literal.lit else { return None };
    pair.path.is_ident("doc").then(|| text.value())
}
