//! Bottlenecks planted on purpose, many simulated and some mounted. Each must be named, and no control may raise an
//! alarm.

mod mounted;

use super::book::Planted;
use super::{Row, Run};
use crate::diagnosis::{Outcome, PLANTS, Plant, SIMULATED, Story, planted};
use crate::failure::Failure;

pub use mounted::seconds;

/// Scenarios of a short run: more than are needed for every plant.
const QUICK_SIMULATED: u64 = 33;
const QUICK_MOUNTED: u64 = 13;

impl Planted {
    /// Returns the numbers of simulated and of mounted scenarios.
    pub fn counts(&self, quick: bool) -> (u64, u64) {
        if quick {
            (self.stories.min(QUICK_SIMULATED), self.mounted.min(QUICK_MOUNTED))
        } else {
            (self.stories, self.mounted)
        }
    }
}

pub fn run(run: &Run<'_>, wanted: &Planted, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let (simulated, mounted) = wanted.counts(run.quick);
    let mut account = Account::default();
    for seed in 0..simulated {
        let story = Story::new(seed, SIMULATED);
        account.add(seed, &story, &story.simulate(), tell);
    }
    let mut rows = account.rows(run, "simulated", wanted.named);
    if mounted > 0 {
        let mut account = Account::default();
        mounted::run(mounted, &mut |seed, story, outcome| account.add(seed, story, outcome, tell))?;
        rows.extend(account.rows(run, "mounted", wanted.named));
    }
    Ok(rows)
}

#[derive(Default)]
struct Account {
    /// For each plant: number of correct verdicts, and of all.
    by_plant: [(u64, u64); PLANTS.len()],
    alarms: u64,
}

impl Account {
    fn add(&mut self, seed: u64, story: &Story, outcome: &Outcome, tell: &mut dyn FnMut(&str)) {
        let (plant, name) = planted(seed);
        if let Some(at) = PLANTS.iter().position(|(known, _)| *known == plant) {
            self.by_plant[at].0 += u64::from(outcome.right);
            self.by_plant[at].1 += 1;
        }
        self.alarms += u64::from(outcome.false_alarm);
        if !outcome.right {
            let words = outcome.verdict.words.join("; ");
            tell(&format!("story {seed}, {name} x {:.2}, was judged: {words}", story.strength));
        }
    }

    fn rows(&self, run: &Run<'_>, how: &str, least: f64) -> Vec<Row> {
        let of = |part: fn(&(u64, u64)) -> u64| self.by_plant.iter().map(part).sum::<u64>();
        let (right, all) = (of(|(right, _)| *right), of(|(_, all)| *all));
        let controls = PLANTS.iter().zip(self.by_plant).find(|((plant, _), _)| *plant == Plant::Nothing);
        let controls = controls.map_or(0, |(_, (_, all))| all);
        let met = PLANTS.iter().zip(self.by_plant).filter(|(_, (_, all))| *all > 0);
        let what = met.map(|((_, name), (right, all))| format!("{name} {right}/{all}")).collect::<Vec<_>>().join(", ");
        let named = Row::new(run, format!("{all} {how}, named rightly"), right as f64 / all as f64, "x");
        let mut quiet =
            Row::new(run, format!("{controls} {how} without a plant, false alarms"), self.alarms as f64, "");
        quiet.bar_most = Some(0.0);
        vec![named.judged(Some(least), None, what), quiet]
    }
}
