//! Whether the engines of a comparison are bounded in memory: all, or none.

use crate::{Error, Result};

/// What is known so far of bounds on this machine.
#[derive(Debug, Default)]
pub(super) enum Bounds {
    /// None was asked for yet.
    #[default]
    Untried,
    /// This engine was bounded.
    Bounded(String),
    /// None can be had, and why.
    Unbounded(String),
}

impl Bounds {
    /// Bounds `engine` as `bound` does, or says why nobody is. The first engine decides for all: where it
    /// could not be bounded no other is, and where it was, all others must be.
    ///
    /// # Errors
    /// If another engine was bounded and this one cannot be: its figures would be of another comparison.
    pub fn set<T>(
        &mut self,
        engine: &str,
        bound: impl FnOnce() -> std::result::Result<T, String>,
    ) -> Result<std::result::Result<T, String>> {
        if let Bounds::Unbounded(why) = self {
            return Ok(Err(why.clone()));
        }
        match (bound(), &*self) {
            (Ok(limit), _) => {
                *self = Bounds::Bounded(engine.to_string());
                Ok(Ok(limit))
            }
            (Err(why), Bounds::Bounded(other)) => Err(Error::runtime(format!(
                "{engine}: its memory cannot be limited as {other}'s was: {why}"
            ))),
            (Err(why), _) => {
                *self = Bounds::Unbounded(why.clone());
                Ok(Err(why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_without_a_bound_beside_one_with_it_is_an_error() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.set("a", || Ok(1)).unwrap(), Ok(1));
        assert_eq!(bounds.set("b", || Ok(2)).unwrap(), Ok(2));
        let error = bounds.set::<u8>("c", || Err("no room".to_string())).unwrap_err().to_string();
        assert_eq!(error, "c: its memory cannot be limited as b's was: no room");
        // What failed once for one does not fail for all.
        assert_eq!(bounds.set("d", || Ok(4)).unwrap(), Ok(4));
    }

    #[test]
    fn where_the_first_cannot_be_bounded_nobody_is() {
        let mut bounds = Bounds::default();
        let refused = Err("no rights".to_string());
        assert_eq!(bounds.set::<u8>("a", || Err("no rights".to_string())).unwrap(), refused);
        assert_eq!(bounds.set::<u8>("b", || panic!("it was tried again")).unwrap(), refused);
    }
}
