//! How fast writers may go: the more background work a keyspace owes, the slower, smoothly and without
//! an end.
//!
//! A store says from time to time how hard pressed a keyspace is: 0 while the debt is what it should be,
//! [`FULL`] where it is the most that should ever be. From that follows what a byte put costs its writer:
//! nothing at 0, else [`LEAST_NS`] growing [`RANGE`]-fold up to [`FULL`], never more. So there is a rate for
//! every speed of the background work at which the debt stands still.
//!
//! While any keyspace is pressed, what settles is in a [hurry](crate::executor::Executor::hurry).
//!
//! Where several wait, a byte costs each of them as much more: all together go at that rate, however many they are.
//!
//! What is owed is forgiven once the keyspace is not pressed. Writers wait only once a [`TICK_NS`] is owed: the
//! price of most commits is an addition. Whoever comes to that pays it all: less than a tick that others left, and
//! his own bytes at the price of each moment, a [`STEP_NS`] after the other, [`MOST_STEPS`] at most. So the debt
//! stands still for commits that cost less than those 10 s; longer ones outrun it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Engine, Work, lock};
use crate::error::ErrorKind;
use crate::format::entry::KeyspaceId;

/// The pressure where a byte costs the most.
pub const FULL: u64 = 1000;
/// What a byte costs at the least pressure: 1 GB/s is let through. At half of [`FULL`] it is 10 MB/s, at
/// [`FULL`] 100 kB/s, of all writers together: less than any background work gets on, unless it is not allowed to
/// ([`super::allowance`]).
const LEAST_NS: f64 = 1.0;
/// How much dearer a byte is at [`FULL`].
const RANGE: f64 = 10_000.0;
/// Debts below it wait for more.
const TICK_NS: u64 = 1_000_000;
/// A commit waits so long at a time; then the price is looked at again.
const STEP_NS: u64 = 20_000_000;
/// No commit waits for more steps than that, 10 s in all beside what others left; the rest is forgiven.
const MOST_STEPS: usize = 500;
/// No more are counted: else a byte would cost more than a step.
const MOST_PAYERS: u64 = 2000;

/// How hard pressed keyspaces are, those that are, and what their writers owe.
#[derive(Debug, Default)]
pub struct Pace {
    pressed: AtomicBool,
    keyspaces: Mutex<BTreeMap<KeyspaceId, Pressed>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pressed {
    pressure: u64,
    /// Less than a tick, at the prices when it was put there.
    owed_ns: f64,
    /// So many commits have something to pay.
    payers: u64,
}

/// What a commit has yet to pay. While there is one it costs others more.
#[derive(Debug)]
pub struct Bill<'a> {
    pace: &'a Pace,
    /// Of those it changes the one that was pressed most.
    keyspace: KeyspaceId,
    /// What others left, less than a tick.
    owed_ns: f64,
    bytes: u64,
    steps: usize,
}

impl Engine {
    /// Says how hard pressed a keyspace is.
    pub fn press(&self, keyspace: KeyspaceId, pressure: u64) {
        self.hurry_if(self.pace.press(keyspace, pressure));
    }

    /// Whether what settles a keyspace found no room when it was tried last: then nobody is to pay for what no time pays.
    pub fn lacks_room_to_settle(&self, keyspace: KeyspaceId) -> bool {
        let error = self.health.work_error(Work::Settle(keyspace));
        error.is_some_and(|error| error.kind() == ErrorKind::DiskFull)
    }

    /// Forgets how hard pressed keyspaces are that are gone.
    pub fn press_none_but(&self, is_there: impl Fn(KeyspaceId) -> bool) {
        self.hurry_if(self.pace.forget_unless(is_there));
    }

    fn hurry_if(&self, changed: Option<bool>) {
        if let Some(begins) = changed {
            self.executor.hurry(begins);
        }
    }
}

impl Pace {
    /// Takes down how hard pressed a keyspace is. Whether any is now, if that is new: for [`Engine::press`].
    fn press(&self, keyspace: KeyspaceId, pressure: u64) -> Option<bool> {
        let mut known = lock(&self.keyspaces);
        match pressure {
            0 => _ = known.remove(&keyspace),
            _ => known.entry(keyspace).or_default().pressure = pressure,
        }
        self.note(!known.is_empty())
    }

    /// The caller holds the lock.
    fn note(&self, pressed: bool) -> Option<bool> {
        (self.pressed.swap(pressed, Ordering::Relaxed) != pressed).then_some(pressed)
    }

    /// How hard pressed a keyspace is, [`FULL`] at most.
    pub fn pressure(&self, keyspace: KeyspaceId) -> u64 {
        match self.pressed.load(Ordering::Relaxed) {
            true => lock(&self.keyspaces).get(&keyspace).map_or(0, |p| p.pressure.min(FULL)),
            false => 0,
        }
    }

    /// Forgets keyspaces that are gone. As [`Pace::press`].
    fn forget_unless(&self, is_there: impl Fn(KeyspaceId) -> bool) -> Option<bool> {
        if !self.pressed.load(Ordering::Relaxed) {
            return None;
        }
        let mut known = lock(&self.keyspaces);
        known.retain(|id, _| is_there(*id));
        self.note(!known.is_empty())
    }

    /// Charges a commit of `bytes` to `keyspaces`; what it is to [pay](Bill::pay), if it comes to anything.
    pub fn charge(&self, keyspaces: &[KeyspaceId], bytes: u64) -> Option<Bill<'_>> {
        if !self.pressed.load(Ordering::Relaxed) {
            return None;
        }
        let mut known = lock(&self.keyspaces);
        let pressures = keyspaces.iter().filter_map(|id| Some((known.get(id)?.pressure, *id)));
        let (pressure, keyspace) = pressures.max()?;
        let pressed = known.get_mut(&keyspace)?;
        let owed_ns = std::mem::take(&mut pressed.owed_ns);
        let all_ns = owed_ns + bytes as f64 * ns_per_byte(pressure);
        if all_ns < TICK_NS as f64 {
            pressed.owed_ns = all_ns;
            return None;
        }
        pressed.payers += 1;
        Some(Bill { pace: self, keyspace, owed_ns, bytes, steps: 0 })
    }
}

impl Bill<'_> {
    /// How long to wait next; `None`: no longer.
    pub fn pay(&mut self) -> Option<Duration> {
        let is_paid = self.bytes == 0 && self.owed_ns == 0.0;
        if is_paid || self.steps == MOST_STEPS {
            return None;
        }
        let pressed = *lock(&self.pace.keyspaces).get(&self.keyspace)?;
        // Of a keyspace that was not pressed meanwhile those are counted who came since.
        let payers = pressed.payers.clamp(1, MOST_PAYERS) as f64;
        let price = ns_per_byte(pressed.pressure) * payers;
        let paid = self.bytes.min((STEP_NS as f64 / price) as u64);
        self.bytes -= paid;
        self.steps += 1;
        let owed_ns = std::mem::take(&mut self.owed_ns) * payers;
        Some(Duration::from_nanos((owed_ns + paid as f64 * price) as u64))
    }
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        if let Some(pressed) = lock(&self.pace.keyspaces).get_mut(&self.keyspace) {
            pressed.payers = pressed.payers.saturating_sub(1);
        }
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
        let Some(mut bill) = pace.charge(keyspaces, bytes) else { return 0 };
        let steps = std::iter::from_fn(|| bill.pay());
        steps.map(|step| step.as_nanos() as u64).sum()
    }

    #[test]
    fn whoever_writes_to_a_keyspace_that_is_pressed_pays_and_nobody_else() {
        let pace = Pace::default();
        assert_eq!(waits(&pace, &[1], 1 << 30), 0, "nobody is pressed");
        pace.press(1, FULL);
        pace.press(2, 0);
        pace.press(4, 7 * FULL);
        assert_eq!([1, 2, 3, 4].map(|id| pace.pressure(id)), [FULL, 0, 0, FULL]);
        pace.press(4, 0);
        assert_eq!(waits(&pace, &[2], 1 << 30), 0);
        assert_eq!(waits(&pace, &[1], 50), 0, "half a tick is owed");
        let both = waits(&pace, &[2, 1], 60);
        assert!((1_090_000..1_110_000).contains(&both), "{both}");
        assert_eq!(waits(&pace, &[1], 50), 0, "all was paid");
        pace.press(1, 0);
        assert_eq!(waits(&pace, &[1], 1 << 30), 0);
    }

    #[test]
    fn a_hurry_begins_with_the_first_that_is_pressed_and_ends_with_the_last() {
        let pace = Pace::default();
        let none_but = |id| move |there| there == id;
        assert_eq!(pace.press(1, 0), None);
        assert_eq!(
            [(1, 5), (2, 7), (1, 0)].map(|(id, p)| pace.press(id, p)),
            [Some(true), None, None]
        );
        assert_eq!((pace.press(2, 0), pace.press(2, 0)), (Some(false), None));
        assert_eq!((pace.press(3, 1), pace.forget_unless(none_but(3))), (Some(true), None));
        assert_eq!(pace.forget_unless(none_but(4)), Some(false));
        assert_eq!(pace.forget_unless(none_but(4)), None);
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

    /// Each went at the price of one: thirty-two put 3.2 MB/s where a byte cost the most.
    #[test]
    fn all_who_wait_go_at_one_rate_together() {
        let pace = Pace::default();
        pace.press(1, FULL);
        let alone = waits(&pace, &[1], 1000);
        let others: Vec<_> = (0..31).map(|_| pace.charge(&[1], 1000).unwrap()).collect();
        let together = waits(&pace, &[1], 1000);
        assert!((31 * alone..=32 * alone).contains(&together), "{alone}, then {together}");
        // Also what is put by little and little.
        assert_eq!(waits(&pace, &[1], 99), 0);
        let short = waits(&pace, &[1], 1);
        assert!((31_000_000..=32_000_000).contains(&short), "{short}");
        drop(others);
        assert_eq!(waits(&pace, &[1], 1000), alone, "they are gone");
        // A step of theirs is less than a byte.
        let crowd: Vec<_> = (0..5000).map(|_| pace.charge(&[1], 1000).unwrap()).collect();
        let waited = waits(&pace, &[1], 1000);
        assert!((9_900_000_000..=10_000_000_000).contains(&waited), "{waited}");
        drop(crowd);
    }

    /// What a long commit does not pay, others would pay for hours, a step with each of their own; and at
    /// their price what was owed to another keyspace at a lower one.
    #[test]
    fn nobody_waits_for_ever_or_for_others() {
        let pace = Pace::default();
        pace.press(1, FULL);
        pace.press(2, 1);
        let most = MOST_STEPS as u64 * STEP_NS;
        assert!((most / 100 * 99..=most).contains(&waits(&pace, &[1], u64::MAX)));
        assert_eq!(waits(&pace, &[1], 50), 0);
        assert_eq!(waits(&pace, &[2], 900_000), 0);
        assert_eq!(waits(&pace, &[1], 49), 0);
    }

    /// A MB that was left at a low price was paid by a commit of a byte at a high one: 10 s.
    #[test]
    fn what_was_left_costs_what_it_cost_when_it_was_put() {
        let pace = Pace::default();
        pace.press(1, 1);
        assert_eq!(waits(&pace, &[1], 900_000), 0);
        pace.press(1, FULL);
        let waited = waits(&pace, &[1], 10);
        assert!((1_000_000..1_010_000).contains(&waited), "{waited}");
        assert_eq!(waits(&pace, &[1], 99), 0, "it was paid once");
    }

    /// The price of the moment: a long commit goes on at once where the pressure is gone.
    #[test]
    fn who_waits_sees_the_price_fall() {
        let pace = Pace::default();
        pace.press(1, FULL);
        let mut bill = pace.charge(&[1], 1 << 20).unwrap();
        assert!(bill.pay().is_some());
        pace.press(1, 0);
        assert!(bill.pay().is_none());
        pace.press(1, 1);
        assert_eq!(waits(&pace, &[1], 1), 0, "what was left is forgiven");
    }
}
