//! The plan as terminal text.

use std::fmt::Write;

use super::what_if::OTHER;
use super::{Direction, Outcome, Plan, Scenario};
use crate::table::Table;
use crate::units::{format_rate, format_share};

/// Returns tables and sentences, ready to print.
pub fn render(plan: &Plan) -> String {
    let mut text = String::new();
    if !plan.name.is_empty() {
        let _ = writeln!(text, "{}\n", plan.name);
    }
    let alike = plan.is_alike();
    let shown: &[Direction] = if alike { &plan.directions[..1] } else { &plan.directions };
    for direction in shown {
        let name = if alike { "write and read" } else { direction.name.as_str() };
        text.push_str(&limits(direction, name));
        text.push_str(&verdict(plan, direction));
        let (write, read) = (plan.write(), plan.read());
        text.push_str(&if !alike {
            measured(direction, &direction.name)
        } else if write.eta == read.eta {
            measured(write, "either direction")
        } else {
            measured(write, &write.name) + &measured(read, &read.name)
        });
        text.push('\n');
    }
    for finding in &plan.findings {
        let _ = writeln!(text, "note: {finding}");
    }
    if !plan.scenarios.is_empty() {
        let _ = write!(text, "\n{}", scenarios(plan));
    }
    text
}

fn limits(direction: &Direction, name: &str) -> String {
    let mut table = Table::new(["limit", name, "", "from"]);
    for ceiling in &direction.ceilings {
        let mark = if ceiling.symbol == direction.binding { "<- binds" } else { "" };
        let symbol = format!("{}  {}", ceiling.symbol, ceiling.symbol.words());
        table.row([symbol, format_rate(ceiling.bytes_per_s), mark.to_string(), ceiling.from.clone()]);
    }
    table.render()
}

fn verdict(plan: &Plan, direction: &Direction) -> String {
    let mut text = format!(
        "\n{} bind{}: at most {}",
        capital(direction.binding.words()),
        if direction.binding.words().ends_with("links") { "" } else { "s" },
        format_rate(direction.minimum_bytes_per_s)
    );
    if direction.attainable_bytes_per_s < direction.minimum_bytes_per_s {
        let _ = write!(text, ", {} after known losses", format_rate(direction.attainable_bytes_per_s));
    }
    let per_process = format_rate(plan.per_process_bytes_per_s);
    let _ = writeln!(text, ".\nP = {:.1}: that many processes with {per_process} each fill it.", direction.parallelism);
    text
}

fn measured(direction: &Direction, name: &str) -> String {
    let mut text = String::new();
    if let Some(eta) = direction.eta {
        let _ = writeln!(text, "eta = {eta:.3} ({name}): the measured figure is {} of the limit.", format_share(eta));
    }
    if let Some(parallelism) = direction.parallelism_measured {
        let _ =
            writeln!(text, "P_meas = {parallelism:.1} ({name}): the best result is that many times one process alone.");
    }
    text
}

/// Returns one table if all what-ifs affect writers and readers equally, otherwise one for each direction.
fn scenarios(plan: &Plan) -> String {
    let rates = |outcome: &Outcome| (outcome.minimum_bytes_per_s, outcome.attainable_bytes_per_s);
    let same = |scenario: &Scenario| scenario.read.as_ref().is_none_or(|read| rates(read) == rates(&scenario.write));
    if plan.is_alike() && plan.scenarios.iter().all(same) {
        return changes(plan, plan.write(), "what if", |scenario| Some(&scenario.write));
    }
    let writing = changes(plan, plan.write(), "what if, writing", |scenario| Some(&scenario.write));
    format!("{writing}\n{}", changes(plan, plan.read(), "what if, reading", |scenario| scenario.read.as_ref()))
}

fn changes(plan: &Plan, now: &Direction, title: &str, of: impl Fn(&Scenario) -> Option<&Outcome>) -> String {
    let mut table = Table::new([title, "limit", "attainable", "then binds", "P", "adds", "cost", "per further GB/s"]);
    let money = |price: Option<f64>| price.map_or("-".to_string(), |price| format!("{price:.0} {}", plan.currency));
    let row = |minimum: f64, attainable: f64| [format_rate(minimum), format_rate(attainable)];
    let [limit, attainable] = row(now.minimum_bytes_per_s, now.attainable_bytes_per_s);
    let (p, none) = (format!("{:.1}", now.parallelism), || "-".to_string());
    table.row(["(as it is)".into(), limit, attainable, now.binding.to_string(), p, none(), none(), none()]);
    for (scenario, outcome) in plan.scenarios.iter().filter_map(|scenario| Some((scenario, of(scenario)?))) {
        let [limit, attainable] = row(outcome.minimum_bytes_per_s, outcome.attainable_bytes_per_s);
        let (p, binds) = (format!("{:.1}", outcome.parallelism), outcome.binding.to_string());
        let gain = (outcome.attainable_bytes_per_s - now.attainable_bytes_per_s) / 1e9;
        let each = match outcome.cost_per_gigabyte_per_s {
            Some(price) => money(Some(price)),
            // Without prices, the cost is stated as a number of parts.
            None if scenario.cost.is_none() && gain > 0.0 => {
                adds(scenario, |more| format!("{:.3}", more as f64 / gain))
            }
            None => none(),
        };
        let adds = adds(scenario, |more| format!("{more:+}"));
        table.row([scenario.change.clone(), limit, attainable, binds, p, adds, money(scenario.cost), each]);
    }
    table.render()
}

fn adds(scenario: &Scenario, number: impl Fn(i64) -> String) -> String {
    let each = scenario.adds.iter().map(|(name, more)| {
        // A replacement does not add to the number of parts.
        format!(
            "{} {name}",
            if name.starts_with(OTHER) { number(*more).trim_start_matches('+').to_string() } else { number(*more) }
        )
    });
    let all = each.collect::<Vec<_>>().join(" ");
    if all.is_empty() { "-".to_string() } else { all }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}
