//! What is made of the numbers of several rounds.

/// The value in the middle; of an even number of values, the mean of the two. Values that are no numbers are left out.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// The median of each round beside the round of the other that was next to it: what changed
/// between rounds meets both alike, and leaves the ratio alone.
pub(crate) fn ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    median(of.iter().zip(to).map(|(of, to)| of / to))
}

/// How even the shares are: the smallest part of the largest; 1 is even.
pub(crate) fn evenness(shares: &[u64]) -> Option<f64> {
    let (least, most) = (*shares.iter().min()?, *shares.iter().max()?);
    (most > 0).then(|| least as f64 / most as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([f64::NAN, 7.0, f64::INFINITY]), Some(7.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_ratio_is_of_neighbours() {
        // The machine slowed down to a tenth half-way; the ratio of the two did not change.
        assert_eq!(ratio(&[90.0, 90.0, 9.0], &[100.0, 100.0, 10.0]), Some(0.9));
        assert_eq!(ratio(&[1.0], &[0.0]), None);
        assert_eq!(ratio(&[], &[]), None);
    }

    #[test]
    fn shares_are_even_or_not() {
        assert_eq!(evenness(&[5, 5, 5]), Some(1.0));
        assert_eq!(evenness(&[0, 10]), Some(0.0));
        assert_eq!(evenness(&[0, 0]), None);
        assert_eq!(evenness(&[]), None);
    }
}
