//! Factors as terminal text.

use super::{Factor, Factors, Level};
use crate::table::Table;
use crate::units::{format_operations, format_rate, format_share};

/// A table, and a sentence for each factor.
pub fn render(factors: &Factors) -> String {
    let mut table = Table::new(["factor", "level", "rate", "+-"]);
    for factor in &factors.factors {
        for (number, level) in factor.levels.iter().enumerate() {
            let name = if number == 0 { factor.name.as_str() } else { "" };
            let spread = level.spread.map_or(String::new(), format_share);
            table.row([name.to_string(), level.name.clone(), value(factor, level), spread]);
        }
    }
    let (target, kind) = (factors.target.display(), &factors.behind.file_system);
    let mut text = format!("{target} ({kind})\n\n{}\n", table.render());
    for factor in &factors.factors {
        text.push_str(&format!("{}: {}\n", factor.name, factor.words));
    }
    text
}

/// A level's rate with its unit, or why there is none.
pub fn value(factor: &Factor, level: &Level) -> String {
    match (level.rate, &level.refused) {
        (Some(rate), _) if factor.data => format_rate(rate),
        (Some(rate), _) => format_operations(rate),
        (None, Some(why)) => format!("- ({why})"),
        (None, None) => "-".to_string(),
    }
}
