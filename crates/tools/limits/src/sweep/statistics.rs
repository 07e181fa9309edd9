//! Statistics of a sweep.

use std::collections::BTreeSet;

/// Returns each value once, in rising order.
pub fn distinct(values: impl IntoIterator<Item = u64>) -> Vec<u64> {
    values.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the median: the middle value, or the mean of the two middle ones; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns half the width of the median's 95 % confidence interval by Student's t, as a share of the mean. `None` for
/// fewer than two values.
pub fn spread(values: &[f64]) -> Option<f64> {
    /// Two-sided 95 % quantiles for 1, 2, 3... degrees of freedom.
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    /// Ratio of the standard error of the median to that of the mean, for many values. For two values both are equal.
    const OF_MEDIAN: f64 = 1.2533;
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let freedom = count - 1.0;
    // Beyond the table the formula is exact to three digits: 2.201 for 11, 2.042 for 30.
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96 + 2.37 / freedom + 2.8 / freedom.powi(2));
    let widened = if values.len() > 2 { OF_MEDIAN } else { 1.0 };
    (mean > 0.0).then(|| widened * t * (variance / count).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_wild_value() {
        assert_eq!(median(&[1.0, 100.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 3.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn equal_values_have_no_spread_and_one_value_has_none_to_state() {
        assert_eq!(spread(&[5.0, 5.0, 5.0]), Some(0.0));
        assert_eq!(spread(&[5.0]), None);
        // 1.2533 * t(2) * sd / sqrt(3) / mean = 1.2533 * 4.303 * 1 / 1.732 / 10
        assert!((spread(&[9.0, 10.0, 11.0]).unwrap() - 0.3114).abs() < 1e-3);
        // These values sixteen times: t(47) = 2.012.
        let many: Vec<f64> = [9.0, 10.0, 11.0].repeat(16);
        assert!((spread(&many).unwrap() - 1.2533 * 2.012 * 0.8251 / 48f64.sqrt() / 10.0).abs() < 1e-4);
    }

    /// Simulates noise without drift; `draw` gives rates around a known one. Returns how often the stated interval
    /// contains it, and how often the intervals of two measurements overlap.
    fn kept(count: usize, mut draw: impl FnMut() -> f64, truth: f64) -> (f64, f64) {
        const TRIES: usize = 4000;
        let (mut held, mut met) = (0, 0);
        let mut last: Option<(f64, f64)> = None;
        for _ in 0..TRIES {
            let values: Vec<f64> = (0..count).map(|_| draw()).collect();
            let (middle, mean) = (median(&values), values.iter().sum::<f64>() / count as f64);
            let half = spread(&values).unwrap() * mean;
            held += usize::from((middle - truth).abs() <= half);
            met += usize::from(last.is_none_or(|(other, width)| (middle - other).abs() <= half + width));
            last = Some((middle, half));
        }
        (held as f64 / TRIES as f64, met as f64 / TRIES as f64)
    }

    #[test]
    fn results_reproduce_within_the_confidence_that_is_stated() {
        let mut state = 1u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for count in [2, 3, 4, 5, 7, 10, 12, 20] {
            let bell = || 100.0 + 5.0 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0);
            let (held, met) = kept(count, bell, 100.0);
            assert!(held >= 0.94 && met >= 0.985, "{count} runs with even noise: {held} held, {met} met");
            // Most runs near the maximum, some far below it, as on a machine with other work. The median is what is
            // stated.
            let skewed = || 100.0 + 5.0 * (1.0 - uniform()).ln();
            let (held, met) = kept(count, skewed, 100.0 - 5.0 * std::f64::consts::LN_2);
            assert!(held >= 0.90 && met >= 0.97, "{count} runs with skewed noise: {held} held, {met} met");
        }
    }
}
