//! What reads have paid for data that is not settled, in requests that they would not have made of settled data.
//!
//! A value that still stands apart from its key takes a request more than one in its block. Nobody knows how often it will be
//! read; but once reads have paid as much as settling costs, settling costs no more than twice the best in hindsight,
//! whatever follows (rent or buy: Karlin et al., "Competitive Snoopy Caching", 1988). What it costs, the store says.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The price is looked at once for each so many requests.
const LOOKED_AT: u64 = 1024;

/// See the module page.
#[derive(Debug, Default)]
pub struct Rent(AtomicU64);

impl Rent {
    /// Counts so many requests. True: somebody should look whether that pays for settling.
    pub fn pay(&self, requests: u64) -> bool {
        let before = self.0.fetch_add(requests, Relaxed);
        (before + requests) / LOOKED_AT > before / LOOKED_AT
    }

    /// What was paid since it last began anew, requests.
    pub fn paid(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// All was settled that was paid for.
    pub fn begin_anew(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_is_looked_at_once_in_a_while() {
        let rent = Rent::default();
        let looks = |requests: u64| (0..10_240).filter(|_| rent.pay(requests)).count();
        assert_eq!([looks(0), looks(1), looks(3)], [0, 10, 30]);
        assert!(rent.pay(5000));
        assert_eq!(rent.paid(), 40_960 + 5000);
        rent.begin_anew();
        assert_eq!(rent.paid(), 0);
        assert!(!rent.pay(LOOKED_AT - 1) && rent.pay(1));
    }
}
