//! Which neighbouring runs become one run: a choice by their sizes alone (decision 31).
//!
//! Runs are counted from the newest. Each flush adds one, until all are taken away at once. How many will
//! still come before that decides what is cheap:
//! * **Many**: runs of one size are gathered, newest first, as sums of binary digits are. Were the same few
//!   always kept apart and the rest merged, the rest would be written again by every merge.
//! * **Few**: only so many must go as are too many then, and those that cost least for each that goes. Each
//!   is written about once, and the large ones not at all.
//!
//! The forecast may be wrong: then more is written, and there are no more runs for it.

use std::cmp::Reverse;
use std::ops::Range;

use super::merge::MAX_RUNS;

/// How many neighbours become one, at least, where many are to come.
const FAN_IN: usize = 4;

/// The neighbours to merge next, if `runs` are more than [`MAX_RUNS`]: of each run the bytes, newest first, or
/// `None` if it cannot be read. `coming`: so many more before all are taken away. Together they have no
/// more than `most_bytes`.
pub fn to_merge(runs: &[Option<u64>], coming: usize, most_bytes: u64) -> Option<Range<usize>> {
    let surplus = runs.len().checked_sub(MAX_RUNS).filter(|surplus| *surplus > 0)?;
    if coming >= runs.len() {
        let (bytes, newest) = alike(runs);
        if newest.len() >= FAN_IN && bytes <= most_bytes {
            return Some(newest);
        }
        if newest.len() >= FAN_IN {
            let windows = windows(runs, FAN_IN, most_bytes).filter(|(_, w)| w.len() == FAN_IN);
            return windows.min_by_key(|(bytes, _)| *bytes).map(|(_, window)| window);
        }
        // The newest cannot be read: among the others.
    }
    let widest = surplus.saturating_add(coming).saturating_add(1);
    let windows = windows(runs, widest, most_bytes);
    let chosen = windows.min_by_key(|(bytes, window)| {
        let for_each_gone = u128::from(*bytes) * 1000 / (window.len() as u128 - 1);
        (for_each_gone, Reverse(window.len()), Reverse(window.start))
    });
    chosen.map(|(_, window)| window)
}

/// The newest runs, each at most as large as all newer ones together, but for the first few; and their bytes.
fn alike(runs: &[Option<u64>]) -> (u64, Range<usize>) {
    let (mut bytes, mut end) = (0u64, 0);
    for run in runs.iter().map_while(|run| *run) {
        if end >= FAN_IN && run > bytes {
            break;
        }
        bytes = bytes.saturating_add(run);
        end += 1;
    }
    (bytes, 0..end)
}

/// All two to `widest` neighbours that can be read and have `most_bytes` together at most; and their bytes.
fn windows(
    runs: &[Option<u64>],
    widest: usize,
    most_bytes: u64,
) -> impl Iterator<Item = (u64, Range<usize>)> {
    (0..runs.len()).flat_map(move |newest| {
        let sums = runs[newest..].iter().take(widest).scan(0u64, move |bytes, run| {
            *bytes = bytes.checked_add((*run)?).filter(|bytes| *bytes <= most_bytes)?;
            Some(*bytes)
        });
        (newest + 1..).zip(sums).skip(1).map(move |(end, bytes)| (bytes, newest..end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = usize::MAX / 2;

    fn whole(runs: &[u64]) -> Vec<Option<u64>> {
        runs.iter().copied().map(Some).collect()
    }

    /// Bytes merged for each byte flushed, where `flushes` runs come and are then taken away, by a forecast of how
    /// many are still to come; merges wait until there are `least` runs.
    fn merged(flushes: usize, least: usize, forecast: impl Fn(usize) -> usize) -> f64 {
        let (mut runs, mut merged) = (Vec::new(), 0);
        for left in (0..flushes).rev() {
            runs.insert(0, 1000);
            // The last one is taken away with all others.
            while left > 0 && runs.len() >= least {
                let Some(chosen) = to_merge(&whole(&runs), forecast(left), u64::MAX) else { break };
                assert!(chosen.len() >= 2, "{runs:?}: {chosen:?}");
                let bytes = runs[chosen.clone()].iter().sum();
                runs.splice(chosen, [bytes]);
                merged += bytes;
            }
            assert!(left == 0 || runs.len() <= MAX_RUNS.max(least), "{runs:?}");
        }
        merged as f64 / (flushes as f64 * 1000.0)
    }

    /// The middle one of nine runs was merged each time: 2.6, 6.5, 20.8 bytes for each that was flushed.
    #[test]
    fn what_merges_write_grows_slowly_with_the_runs_between_sweeps() {
        for (flushes, most) in
            [(10, 0.31), (16, 0.57), (40, 1.0), (80, 1.6), (200, 2.5), (400, 2.8)]
        {
            let merged = merged(flushes, 0, |left| left);
            assert!(merged <= most, "{flushes} flushes: {merged}");
        }
    }

    #[test]
    fn a_wrong_forecast_costs_bytes_and_no_runs() {
        let forecasts: [(&dyn Fn(usize) -> usize, f64); 5] = [
            (&|_| MANY, 2.5),
            (&|left| left * 2, 2.5),
            (&|left| left / 2, 2.5),
            (&|_| 8, 4.0),
            // As if the sweep came with the next run, for ever: still half of what it was.
            (&|_| 0, 10.4),
        ];
        for (at, (forecast, most)) in forecasts.into_iter().enumerate() {
            let merged = merged(200, 0, forecast);
            assert!(merged <= most, "forecast {at}: {merged}");
        }
    }

    /// Where merges wait for flushes until there are very many runs, few are left by one merge, and they stay cheap.
    #[test]
    fn merges_that_lag_behind_take_many_at_once() {
        let many = super::super::merge::MAX_RUNS_WHILE_FLUSHING;
        for coming in [0, 5, MANY] {
            assert_eq!(
                to_merge(&vec![Some(1000); many], coming, u64::MAX).unwrap().len(),
                match coming {
                    0 => many - MAX_RUNS + 1,
                    5 => many - MAX_RUNS + 6,
                    _ => many,
                }
            );
        }
        let merged = merged(200, many, |left| left);
        assert!(merged < 1.0, "{merged}: it was 5.3");
    }

    /// The least that must be merged until `coming` runs of a size have come, whatever is merged when.
    fn least(runs: &[u64], coming: usize, size: u64) -> u64 {
        if runs.len() <= MAX_RUNS {
            if coming == 0 {
                return 0;
            }
            return least(&[&[size], runs].concat(), coming - 1, size);
        }
        let windows =
            (0..runs.len()).flat_map(|from| (from + 2..=runs.len()).map(move |to| from..to));
        let costs = windows.map(|window| {
            let (mut runs, bytes) = (runs.to_vec(), runs[window.clone()].iter().sum());
            runs.splice(window, [bytes]);
            bytes + least(&runs, coming, size)
        });
        costs.min().unwrap()
    }

    fn chosen(runs: &[u64], coming: usize, size: u64) -> u64 {
        if runs.len() <= MAX_RUNS {
            if coming == 0 {
                return 0;
            }
            return chosen(&[&[size], runs].concat(), coming - 1, size);
        }
        let window = to_merge(&whole(runs), coming, u64::MAX).unwrap();
        let (mut runs, bytes) = (runs.to_vec(), runs[window.clone()].iter().sum());
        runs.splice(window, [bytes]);
        bytes + chosen(&runs, coming, size)
    }

    #[test]
    fn where_few_are_to_come_little_more_is_merged_than_must_be() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        };
        let (mut by_choice, mut at_least) = (0, 0);
        for round in 0..40 {
            let sizes: [u64; 3] = [2, 100, 10_000];
            let runs: Vec<_> = (0..9).map(|_| 1 + draw(sizes[round % 3])).collect();
            let coming = draw(3) as usize;
            let (chosen, least) = (chosen(&runs, coming, 1), least(&runs, coming, 1));
            // Of one that is too many the cheapest two go.
            assert!(coming > 0 || chosen == least, "{runs:?}: {chosen} for {least}");
            assert!(chosen <= 2 * least, "{runs:?}, {coming}: {chosen} for {least}");
            (by_choice, at_least) = (by_choice + chosen, at_least + least);
        }
        assert!(by_choice * 5 <= at_least * 6, "{by_choice} for {at_least}");
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_no_more_is_read_than_may_be() {
        let mut runs = whole(&[1; 12]);
        assert_eq!(to_merge(&runs, MANY, u64::MAX), Some(0..12));
        assert_eq!(to_merge(&runs, MANY, 11), Some(0..4));
        assert_eq!(to_merge(&runs, MANY, 3), None);
        assert_eq!(to_merge(&runs, 0, u64::MAX), Some(7..12));
        assert_eq!(to_merge(&runs, 0, 3), Some(9..12));
        assert_eq!(to_merge(&runs, 0, 1), None);
        assert_eq!(to_merge(&runs[..8], MANY, u64::MAX), None);
        runs[5] = None;
        assert_eq!(to_merge(&runs, MANY, u64::MAX), Some(0..5));
        assert_eq!(to_merge(&runs, 0, u64::MAX), Some(7..12));
        runs[2] = None;
        // Two at a time would be merged again with each that comes.
        assert_eq!(to_merge(&runs, MANY, u64::MAX), Some(6..12));
        assert_eq!(to_merge(&[None; 12], MANY, u64::MAX), None);
        assert_eq!(to_merge(&[Some(u64::MAX); 12], 0, u64::MAX), None);
    }
}
