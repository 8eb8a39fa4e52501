//! The shape of the stores of those figures that look at one: the usual one, or another that is asked for.

use super::store::Shape;
use crate::args::{compression, option};
use crate::sizes::{parse_bytes, show_bytes};
use crate::{Error, Result};

/// What `figures`, and the processes that it starts, are told of it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct UsualArgs {
    /// Largest data block, of figures f3, sustained, ten-minutes, f5, f7 and f9 (default: 4k)
    #[arg(long, value_name = "SIZE")]
    block_size: Option<String>,
    /// How blocks are compressed, of the same figures: none, lz4, zstd or zstd:LEVEL; half of each value's bytes compress then (default: none)
    #[arg(long, value_name = "HOW")]
    compression: Option<String>,
    /// So much is settled at least, of the same figures, at full scale (default: 512m; f7: 32m)
    #[arg(long, value_name = "SIZE")]
    min_conversion: Option<String>,
}

impl UsualArgs {
    /// The shape where nothing else is asked for than this.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn or(&self, usual: Shape) -> Result<Shape> {
        let bytes = |name: &str, text: &Option<String>, usual: u64| match text.as_deref() {
            None => Ok(usual),
            Some(text) => match option(name, text, parse_bytes)? {
                0 => Err(Error::usage(format!("{name}: at least 1, found 0"))),
                bytes => Ok(bytes),
            },
        };
        let how = self.compression.as_deref().map(|how| option("--compression", how, compression));
        Ok(Shape {
            block_bytes: bytes("--block-size", &self.block_size, usual.block_bytes)?,
            compression: how.transpose()?.unwrap_or(usual.compression),
            min_conversion_bytes: bytes(
                "--min-conversion",
                &self.min_conversion,
                usual.min_conversion_bytes,
            )?,
            ..usual
        })
    }

    /// What is asked for, in a sentence, if anything is.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn told(&self) -> Result<Option<String>> {
        let shape = self.or(Shape::default())?;
        let told = [
            (&self.block_size, format!("blocks of at most {}", show_bytes(shape.block_bytes))),
            (
                &self.compression,
                format!("{} (half of each value's bytes compress)", shape.compression),
            ),
            (
                &self.min_conversion,
                format!(
                    "sweeps from {} of fresh data on at full scale",
                    show_bytes(shape.min_conversion_bytes)
                ),
            ),
        ];
        let told: Vec<_> = told.into_iter().filter(|(of, _)| of.is_some()).map(|t| t.1).collect();
        Ok((!told.is_empty()).then(|| format!("Stores as asked for: {}.", told.join(", "))))
    }

    /// Whether anything is asked for.
    pub fn is_any(&self) -> bool {
        self.arguments().next().is_some()
    }

    /// The same for a process that is started.
    pub fn arguments(&self) -> impl Iterator<Item = String> {
        let all = [
            ("--block-size", &self.block_size),
            ("--compression", &self.compression),
            ("--min-conversion", &self.min_conversion),
        ];
        all.into_iter().filter_map(|(name, text)| Some(format!("{name}={}", text.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_stays() {
        let asked = UsualArgs { block_size: Some("8k".into()), ..UsualArgs::default() };
        let shape = asked.or(Shape { min_conversion_bytes: 7, ..Shape::default() }).unwrap();
        let expected = Shape { block_bytes: 8192, min_conversion_bytes: 7, ..Shape::default() };
        assert_eq!(shape, expected);
        assert!(asked.arguments().eq(["--block-size=8k"]) && asked.is_any());
        let told = asked.told().unwrap();
        assert_eq!(told.as_deref(), Some("Stores as asked for: blocks of at most 8.0 KiB."));
        let (usual, none) = (Shape::default(), UsualArgs::default());
        assert!(
            none.or(usual).unwrap() == usual && !none.is_any() && none.told().unwrap().is_none()
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (name, args) in [
            ("--block-size", UsualArgs { block_size: Some("0".into()), ..UsualArgs::default() }),
            (
                "--compression",
                UsualArgs { compression: Some("lz5".into()), ..UsualArgs::default() },
            ),
            (
                "--min-conversion",
                UsualArgs { min_conversion: Some("x".into()), ..UsualArgs::default() },
            ),
        ] {
            let refused = args.or(Shape::default()).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
