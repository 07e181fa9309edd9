//! The few statistics that a sweep states.

/// The middle value, or the mean of the two; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Half the width of the 95 % confidence interval of the mean, as a share of it, from Student's t; none for fewer than
/// two values.
pub fn spread(values: &[f64]) -> Option<f64> {
    /// Two-sided 95 % quantiles for 1, 2, 3... degrees of freedom.
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean > 0.0).then(|| t * (variance / count).sqrt() / mean)
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
        // t(2) * sd / sqrt(3) / mean = 4.303 * 1 / 1.732 / 10
        assert!((spread(&[9.0, 10.0, 11.0]).unwrap() - 0.2484).abs() < 1e-3);
    }
}
