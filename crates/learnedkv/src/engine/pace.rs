//! How fast writers may go: the more background work a keyspace owes, the slower, smoothly and without
//! an end.
//!
//! A store says from time to time how hard pressed a keyspace is: 0 while the debt is what it should be,
//! [`FULL`] where it is the most that should ever be. From that follows what a byte put costs its writer:
//! nothing at 0, else [`LEAST_NS`] growing [`RANGE`]-fold up to [`FULL`], never more. So there is a rate for every speed of the background work at which the debt stands still.
//! Writers pay together, and wait only once a [`TICK_NS`] is owed: the price of most commits is an addition.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::lock;
use crate::format::entry::KeyspaceId;

/// The pressure where a byte costs the most.
pub const FULL: u64 = 1000;
/// What a byte costs at the least pressure: 1 GB/s is let through. At half of [`FULL`] it is 10 MB/s, at
/// [`FULL`] 100 kB/s: less than any background work gets on.
const LEAST_NS: f64 = 1.0;
/// How much dearer a byte is at [`FULL`].
const RANGE: f64 = 10_000.0;
/// Debts below it wait for more.
const TICK_NS: u64 = 1_000_000;
/// One commit waits no longer than this; what it owes beyond, the next ones pay.
const MOST_NS: u64 = 20_000_000;
/// Nobody owes more.
const MOST_OWED_NS: u64 = 1_000_000_000;

/// The pressures, and what writers owe.
#[derive(Debug, Default)]
pub struct Pace {
    pressed: AtomicBool,
    pressures: Mutex<BTreeMap<KeyspaceId, u64>>,
    owed_ns: AtomicU64,
}

impl Pace {
    /// Says how hard pressed a keyspace is.
    pub fn press(&self, keyspace: KeyspaceId, pressure: u64) {
        let mut known = lock(&self.pressures);
        match pressure {
            0 => known.remove(&keyspace),
            _ => known.insert(keyspace, pressure),
        };
        self.pressed.store(!known.is_empty(), Ordering::Relaxed);
    }

    /// Forgets keyspaces that are gone.
    pub fn forget_unless(&self, is_there: impl Fn(KeyspaceId) -> bool) {
        if self.pressed.load(Ordering::Relaxed) {
            let mut known = lock(&self.pressures);
            known.retain(|id, _| is_there(*id));
            self.pressed.store(!known.is_empty(), Ordering::Relaxed);
        }
    }

    /// How long a commit of `bytes` to `keyspaces` is to wait.
    pub fn charge(&self, keyspaces: &[KeyspaceId], bytes: u64) -> Option<Duration> {
        if !self.pressed.load(Ordering::Relaxed) {
            return None;
        }
        let pressures = lock(&self.pressures);
        let pressure = keyspaces.iter().filter_map(|id| pressures.get(id)).max().copied();
        drop(pressures);
        let price = (bytes as f64 * ns_per_byte(pressure.unwrap_or(0))) as u64;
        if price == 0 {
            return None;
        }
        let add = |owed: u64| Some(owed.saturating_add(price).min(MOST_OWED_NS));
        let owed = self.owed_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if owed.is_ok_and(|before| add(before).is_some_and(|owed| owed < TICK_NS)) {
            return None;
        }
        // Of several writers each pays a part, none of it twice.
        let pay = |owed: u64| Some(owed.saturating_sub(MOST_NS));
        let owed = self.owed_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        let paid = owed.map_or(0, |owed| owed.min(MOST_NS));
        (paid > 0).then_some(Duration::from_nanos(paid))
    }
}

/// What a byte costs at a pressure.
fn ns_per_byte(pressure: u64) -> f64 {
    if pressure == 0 {
        return 0.0;
    }
    LEAST_NS * RANGE.powf(pressure.min(FULL) as f64 / FULL as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_grows_smoothly_and_ends() {
        let prices: Vec<_> = (0..=3 * FULL).map(ns_per_byte).collect();
        assert_eq!(prices[0], 0.0);
        assert!((1.0..1.01).contains(&prices[1]));
        assert!(prices.windows(2).skip(1).all(|p| p[0] <= p[1] && p[1] < p[0] * 1.01));
        assert!((prices[FULL as usize / 2] - 100.0).abs() < 0.1);
        assert!((prices[FULL as usize] - RANGE).abs() < 1.0);
        assert_eq!(prices[FULL as usize], prices[3 * FULL as usize]);
    }

    #[test]
    fn whoever_writes_to_a_keyspace_that_is_pressed_pays_and_nobody_else() {
        let pace = Pace::default();
        assert_eq!(pace.charge(&[1], 1 << 30), None, "nobody is pressed");
        pace.press(1, FULL);
        pace.press(2, 0);
        assert_eq!(pace.charge(&[2], 1 << 30), None);
        assert_eq!(pace.charge(&[1], 50), None, "half a tick is owed");
        let waits = pace.charge(&[2, 1], 60).unwrap().as_nanos() as u64;
        assert!((1_090_000..1_110_000).contains(&waits), "{waits}");
        assert_eq!(pace.charge(&[1], 1 << 30), Some(Duration::from_nanos(MOST_NS)));
        let left =
            (0..).take_while(|_| pace.charge(&[1], 1) == Some(Duration::from_nanos(MOST_NS)));
        let most = (MOST_OWED_NS / MOST_NS) as usize;
        assert!((most..most + 2).contains(&(left.count() + 1)), "what was owed is paid later");
        pace.press(1, 0);
        assert_eq!(pace.charge(&[1], 1 << 30), None);
    }
}
