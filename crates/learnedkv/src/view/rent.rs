//! What reads have paid for data that is not settled, in requests that they would not have made of settled data; or for
//! a filter over runs, in runs that they would not have asked.
//!
//! A value that still stands apart from its key takes a request more than one in its block. Nobody knows how often it will be
//! read; but once reads have paid as much as settling costs, settling costs no more than twice the best in hindsight,
//! whatever follows (rent or buy: Karlin et al., "Competitive Snoopy Caching", 1988). What it costs, the store says.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Few reads say little: no price is asked for before so much is paid.
pub const LEAST: u64 = 1024;

/// See the module page.
#[derive(Debug)]
pub struct Rent {
    paid: AtomicU64,
    /// The price is asked for once so many are paid: it takes a look at many tables.
    asked_at: AtomicU64,
}

impl Default for Rent {
    fn default() -> Rent {
        Rent { paid: AtomicU64::new(0), asked_at: AtomicU64::new(LEAST) }
    }
}

impl Rent {
    /// Counts so many requests, or runs asked in vain. True: somebody should ask whether they cover the price. Once that is so, once in a while:
    /// settling may have to wait.
    pub fn pay(&self, requests: u64) -> bool {
        let before = self.paid.fetch_add(requests, Relaxed);
        let (now, asked_at) = (before + requests, self.asked_at.load(Relaxed));
        now >= asked_at && (before < asked_at || now / LEAST > before / LEAST)
    }

    /// What was paid since it last began anew.
    pub fn paid(&self) -> u64 {
        self.paid.load(Relaxed)
    }

    /// Whether what was paid covers the price, and it can be settled now: else there is no price. That is asked for again once
    /// a quarter of what is missing was paid too, or so many as are asked for at first.
    pub fn covers(&self, price: impl FnOnce() -> Option<u64>) -> bool {
        let paid = self.paid();
        if paid < self.asked_at.load(Relaxed) {
            return false;
        }
        let missing = price().map(|price| price.saturating_sub(paid));
        let wait = missing.map_or(LEAST, |missing| missing.div_ceil(4));
        self.asked_at.store(paid + wait, Relaxed);
        missing == Some(0)
    }

    /// What was paid for is being settled.
    pub fn begin_anew(&self) {
        self.paid.store(0, Relaxed);
        self.asked_at.store(LEAST, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> Option<u64> {
        panic!("asked for a price")
    }

    #[test]
    fn the_price_is_asked_for_once_in_a_while() {
        let rent = Rent::default();
        assert!(!rent.pay(LEAST - 1) && !rent.covers(never));
        assert!(rent.pay(1) && !rent.covers(|| Some(LEAST + 4000)));
        // A quarter of what is missing.
        assert!(!rent.pay(999) && !rent.covers(never));
        assert!(rent.pay(1) && !rent.covers(|| Some(LEAST + 1001)));
        assert!(rent.pay(1) && rent.covers(|| Some(LEAST + 1001)));
        assert_eq!(rent.paid(), LEAST + 1001);
        // Not each request says then that somebody should look.
        let says = (0..10 * LEAST).filter(|_| rent.pay(1)).count();
        assert!(says == 10 && rent.covers(|| Some(LEAST + 1001)));
        // Where it cannot be settled nobody looks for a while.
        assert!(!rent.covers(|| None) && !rent.pay(LEAST - 1) && !rent.covers(never));
        assert!(rent.pay(1) && rent.covers(|| Some(1)));
        rent.begin_anew();
        assert!(rent.paid() == 0 && !rent.pay(LEAST - 1) && !rent.covers(never));
    }

    /// Whoever pays while the price is being asked for may pass what is then said to be the next look.
    #[test]
    fn nobody_is_missed_who_pays_during_a_look() {
        let rent = Rent::default();
        assert!(rent.pay(LEAST));
        let slow = || {
            assert!(rent.pay(2 * LEAST));
            Some(2 * LEAST)
        };
        assert!(!rent.covers(slow));
        assert!((0..LEAST).any(|_| rent.pay(1)) && rent.covers(|| Some(2 * LEAST)));
    }
}
