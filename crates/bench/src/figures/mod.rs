//! The figures of `docs/MEASURED.md`, measured on the real store with the settings that the project
//! fixed for all of them, one file per figure.
//!
//! Every value read is checked, and one wrong answer ends the run. A figure that stands against a
//! target says so beside the measurement; speeds are medians over rounds with their lowest and
//! highest. `--scale small` and `tiny` divide keys, operations, memtable and budget alike, so that a
//! small run has the shape of a full one; only the full one is to be held against the targets.

mod f1;
mod f11;
mod f12;
mod f2;
mod f3;
mod f4;
mod f5;
mod f7;
mod f9;
mod growth;
pub(crate) mod kernel;
mod model;
mod multiget;
mod probing;
mod sheet;
mod store;
mod sustained;
mod usual;
mod watch;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use f7::MemoryArgs;
pub use f9::FillArgs;
pub use growth::GrowthArgs;
use kernel::Busy;
use sheet::Sheet;
use usual::UsualArgs;

use crate::sizes::parse_count;
use crate::suite::place::{Place, check_room};
use crate::{Error, Result};

/// What `learnedkv-bench figures` is told.
#[derive(Debug, Clone, clap::Args)]
pub struct FiguresArgs {
    /// Which: f1 (and f10), f2, f3 (the burst, and f8), f4, sustained (f3 and f6), ten-minutes, f5, f7,
    /// f9, f11, f12, multiget, probing, growth; all of them if none is named
    #[arg(value_name = "FIGURE")]
    pub figures: Vec<String>,
    /// full, small (everything divided by 20) or tiny (by 200)
    #[arg(long, value_name = "NAME", default_value = "full")]
    pub scale: String,
    /// Directory with the coast and path key sets; what is missing is left out, and said
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    pub data: PathBuf,
    /// Directory for the stores; must be new or empty; removed afterwards
    #[arg(long, value_name = "DIR", default_value = "./bench-out/figures")]
    pub dir: PathBuf,
    /// File for the tables, beside standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Rounds of each speed
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: u32,
    /// Operations a second of f5's open loops, instead of half of what its closed one reaches
    #[arg(long, value_name = "N")]
    pub rate: Option<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    #[command(flatten)]
    usual: UsualArgs,
}

/// By how much everything is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale(u64);

impl Scale {
    const ALL: [(&'static str, Scale); 3] =
        [("full", Scale(1)), ("small", Scale(20)), ("tiny", Scale(200))];

    /// `full` at this scale.
    fn of(self, full: u64) -> u64 {
        (full / self.0).max(1)
    }

    fn name(self) -> &'static str {
        Scale::ALL.iter().find(|(_, scale)| *scale == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Scale {
    type Err = Error;

    fn from_str(text: &str) -> Result<Scale> {
        let found = Scale::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, scale)| *scale).ok_or_else(|| {
            Error::usage(format!("--scale: expected full, small or tiny, found `{text}`"))
        })
    }
}

/// What every figure needs to know.
#[derive(Debug)]
struct Run {
    scale: Scale,
    data: PathBuf,
    /// A directory that a figure may fill; it is empty when the figure begins.
    dir: PathBuf,
    rounds: u32,
    /// Of open loops, operations a second, where it is not what follows from a closed one.
    rate: Option<f64>,
    seed: u64,
    /// What is asked of the stores of figures that look at one shape.
    usual: UsualArgs,
    sheet: Sheet,
}

type Figure = fn(&mut Run) -> Result<()>;

const FIGURES: [(&str, Figure); 14] = [
    ("f1", f1::measure),
    ("f2", f2::measure),
    ("f3", f3::measure),
    ("f4", f4::measure),
    ("sustained", sustained::measure),
    ("ten-minutes", sustained::ten_minutes),
    ("f5", f5::measure),
    ("f7", f7::measure),
    ("f9", f9::measure),
    ("f11", f11::measure),
    ("f12", f12::measure),
    ("multiget", multiget::measure),
    ("probing", probing::measure),
    ("growth", growth::measure),
];

/// Those that look at one shape of store, which may be another than the usual one.
const OF_ONE_SHAPE: [&str; 6] = ["f3", "sustained", "ten-minutes", "f5", "f7", "f9"];

/// The most that all stores of a figure take on the disk, at full scale, bytes of data.
const LARGEST_STORE_BYTES: u64 = 6 << 30;

impl FiguresArgs {
    /// Measures, prints each table when it is there, and writes the file if one is asked for.
    ///
    /// # Errors
    /// If an option makes no sense, something goes wrong underway, or a read is wrong.
    pub fn run(&self) -> Result<()> {
        let scale: Scale = self.scale.parse()?;
        let figures = self.chosen()?;
        if self.rounds == 0 {
            return Err(Error::usage("--rounds: at least 1, found 0"));
        }
        let rate = self.rate.as_deref().map(parse_count).transpose()?;
        if rate == Some(0) {
            return Err(Error::usage("--rate: at least 1, found 0"));
        }
        check_room(&self.dir, scale.of(LARGEST_STORE_BYTES))?;
        let place = Place::prepare(&self.dir, false)?;
        let mut run = Run {
            scale,
            data: self.data.clone(),
            dir: place.store(),
            rounds: self.rounds,
            rate: rate.map(|rate| rate as f64),
            seed: self.seed,
            usual: self.usual.clone(),
            sheet: Sheet::default(),
        };
        run.sheet.preamble(scale, &self.dir);
        if let Some(told) = self.usual.told()? {
            run.sheet.line(&told);
        }
        let mut shown = show(&run.sheet, 0)?;
        for figure in figures {
            let busy = Busy::now();
            figure(&mut run)?;
            run.sheet.line(&format!(
                "Meanwhile other processes kept {:.1} cores busy.",
                busy.others_cores()
            ));
            shown = show(&run.sheet, shown)?;
            self.save(&run.sheet)?;
            remove(&run.dir)?;
        }
        place.leave()
    }

    fn chosen(&self) -> Result<Vec<Figure>> {
        let has_own = |name: &&String| !OF_ONE_SHAPE.contains(&name.as_str());
        let own = match self.figures.is_empty() {
            true => Some("f1"),
            false => self.figures.iter().find(has_own).map(String::as_str),
        };
        if let Some(own) = own.filter(|_| self.usual.is_any()) {
            return Err(Error::usage(format!(
                "figure {own} has stores of its own shapes; with --block-size, --compression or --min-conversion name figures of {}",
                OF_ONE_SHAPE.join(", ")
            )));
        }
        if self.figures.is_empty() {
            return Ok(FIGURES.iter().map(|(_, figure)| *figure).collect());
        }
        let names: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
        let find = |name: &String| {
            let found = FIGURES.iter().find(|(known, _)| known == name);
            found.map(|(_, figure)| *figure).ok_or_else(|| {
                Error::usage(format!("`{name}` is not a figure; expected {}", names.join(", ")))
            })
        };
        self.figures.iter().map(find).collect()
    }

    fn save(&self, sheet: &Sheet) -> Result<()> {
        let Some(path) = &self.out else { return Ok(()) };
        fs::write(path, sheet.text()).map_err(|e| Error::io("write the tables", path, &e))
    }
}

/// Prints what was added to the sheet since it was `shown` bytes long; returns its length.
fn show(sheet: &Sheet, shown: usize) -> Result<usize> {
    let mut out = std::io::stdout();
    out.write_all(&sheet.text().as_bytes()[shown..])
        .and_then(|()| out.flush())
        .map_err(|e| Error::output(&e))?;
    Ok(sheet.text().len())
}

/// Removes a store that is not needed any more.
fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove the store", dir, &e))
        }
        _ => Ok(()),
    }
}
