//! How fast writers may go: the more background work a keyspace owes, the slower, smoothly and without
//! an end.
//!
//! A store says from time to time how hard pressed a keyspace is: 0 while the debt is what it should be,
//! [`FULL`] where it is the most that should ever be. From that follows what a byte put costs its writer:
//! nothing at 0, else [`LEAST_NS`] growing [`RANGE`]-fold up to [`FULL`], never more. So there is a rate for
//! every speed of the background work at which the debt stands still.
//!
//! What is owed is bytes, paid at the price of the moment: all are forgiven once nobody is pressed. Writers
//! wait only once a [`TICK_NS`] is owed: the price of most commits is an addition. A long commit pays for
//! its own bytes, a [`STEP_NS`] after the other.

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
/// A commit waits so long at a time; then the price is looked at again.
const STEP_NS: u64 = 20_000_000;
/// No commit waits for more steps than that, 10 s in all: what it owes beyond, the next ones pay.
const MOST_STEPS: usize = 500;
/// More is forgiven.
const MOST_OWED_BYTES: u64 = 1 << 30;

/// The pressures, and what writers owe.
#[derive(Debug, Default)]
pub struct Pace {
    pressed: AtomicBool,
    pressures: Mutex<BTreeMap<KeyspaceId, u64>>,
    owed_bytes: AtomicU64,
}

/// What a commit has yet to pay of its own bytes.
#[derive(Debug)]
pub struct Bill {
    bytes: u64,
    steps: usize,
}

impl Pace {
    /// Says how hard pressed a keyspace is.
    pub fn press(&self, keyspace: KeyspaceId, pressure: u64) {
        let mut known = lock(&self.pressures);
        match pressure {
            0 => known.remove(&keyspace),
            _ => known.insert(keyspace, pressure),
        };
        self.look_at(&known);
    }

    /// Forgets keyspaces that are gone.
    pub fn forget_unless(&self, is_there: impl Fn(KeyspaceId) -> bool) {
        if self.pressed.load(Ordering::Relaxed) {
            let mut known = lock(&self.pressures);
            known.retain(|id, _| is_there(*id));
            self.look_at(&known);
        }
    }

    fn look_at(&self, known: &BTreeMap<KeyspaceId, u64>) {
        self.pressed.store(!known.is_empty(), Ordering::Relaxed);
        if known.is_empty() {
            self.owed_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Charges a commit of `bytes`, if anybody is pressed. It is to [pay](Pace::pay) until that says `None`.
    pub fn charge(&self, bytes: u64) -> Option<Bill> {
        self.pressed.load(Ordering::Relaxed).then_some(Bill { bytes, steps: 0 })
    }

    /// How long whoever commits to `keyspaces` is to wait next; `None`: no longer.
    pub fn pay(&self, keyspaces: &[KeyspaceId], bill: &mut Bill) -> Option<Duration> {
        let is_first = bill.steps == 0;
        if bill.steps == MOST_STEPS || (bill.bytes == 0 && !is_first) {
            return None;
        }
        let pressures = lock(&self.pressures);
        let pressure = keyspaces.iter().filter_map(|id| pressures.get(id)).max().copied();
        drop(pressures);
        let price = ns_per_byte(pressure?);
        if is_first {
            let add = |owed: u64| Some(owed.saturating_add(bill.bytes).min(MOST_OWED_BYTES));
            let owed = self.owed_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
            let owed = owed.unwrap_or_default().saturating_add(bill.bytes);
            if owed as f64 * price < TICK_NS as f64 {
                return None;
            }
        }
        bill.steps += 1;
        // Of several writers each pays a part, none of it twice.
        let most = (STEP_NS as f64 / price) as u64;
        let pay = |owed: u64| Some(owed.saturating_sub(most));
        let owed = self.owed_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        let paid = owed.unwrap_or_default().min(most);
        bill.bytes = bill.bytes.saturating_sub(most);
        (paid > 0).then(|| Duration::from_nanos((paid as f64 * price) as u64))
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

    /// What a commit of `bytes` to `keyspaces` waits in all, ns.
    fn waits(pace: &Pace, keyspaces: &[KeyspaceId], bytes: u64) -> u64 {
        let Some(mut bill) = pace.charge(bytes) else { return 0 };
        let steps = std::iter::from_fn(|| pace.pay(keyspaces, &mut bill));
        steps.map(|step| step.as_nanos() as u64).sum()
    }

    #[test]
    fn whoever_writes_to_a_keyspace_that_is_pressed_pays_and_nobody_else() {
        let pace = Pace::default();
        assert_eq!(waits(&pace, &[1], 1 << 30), 0, "nobody is pressed");
        pace.press(1, FULL);
        pace.press(2, 0);
        assert_eq!(waits(&pace, &[2], 1 << 30), 0);
        assert_eq!(waits(&pace, &[1], 50), 0, "half a tick is owed");
        let both = waits(&pace, &[2, 1], 60);
        assert!((1_090_000..1_110_000).contains(&both), "{both}");
        pace.press(1, 0);
        assert_eq!(waits(&pace, &[1], 1 << 30), 0);
    }

    /// A commit waited 20 ms at most, whatever it put, and what all owed beyond a second was forgiven:
    /// commits of a MiB went on at 50 MB/s each however hard pressed their keyspace was.
    #[test]
    fn long_commits_pay_for_all_their_bytes() {
        let pace = Pace::default();
        pace.press(1, FULL);
        let price = ns_per_byte(FULL);
        for bytes in [1000, 10_000, 300_000] {
            let (waited, expected) = (waits(&pace, &[1], bytes), bytes as f64 * price);
            assert!((waited as f64 / expected - 1.0).abs() < 0.01, "{bytes}: {waited}, {expected}");
        }
    }

    /// Of what one does not pay in ten seconds the next pay a step each, until nobody is pressed.
    #[test]
    fn nobody_waits_for_ever_and_what_is_left_is_forgiven_in_the_end() {
        let pace = Pace::default();
        pace.press(1, FULL);
        let step = 19_990_000..=STEP_NS;
        assert!((500 * step.start()..=500 * STEP_NS).contains(&waits(&pace, &[1], u64::MAX)));
        assert!((0..100).all(|_| step.contains(&waits(&pace, &[1], 1))));
        assert!(pace.owed_bytes.load(Ordering::Relaxed) > MOST_OWED_BYTES / 2);
        pace.press(1, 0);
        pace.press(1, 1);
        assert_eq!(waits(&pace, &[1], 1), 0, "an old debt was paid for");
    }

    /// The price of the moment: a long commit goes on at once where the pressure is gone.
    #[test]
    fn who_waits_sees_the_price_fall() {
        let pace = Pace::default();
        pace.press(1, FULL);
        let mut bill = pace.charge(1 << 20).unwrap();
        assert!(pace.pay(&[1], &mut bill).is_some());
        pace.press(1, 0);
        assert_eq!(pace.pay(&[1], &mut bill), None);
    }
}
