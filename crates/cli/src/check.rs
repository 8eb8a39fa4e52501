//! `verify`: is everything on the disk what was written? And `inspect`: what does a file say?

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use learnedkv::{Verified, Verifying};
use learnedkv_bench::sizes::show_count;
use learnedkv_bench::{Error, Result};

use crate::store;

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only the tables and values of this keyspace, beside what all share
    #[arg(value_name = "KEYSPACE")]
    keyspace: Option<String>,
}

impl Verify {
    pub fn run(self) -> Result<()> {
        let mut out = std::io::stdout();
        let (bar, mut written) = (progress_bar(), Ok(()));
        let mut watch = |told: Verifying<'_>| match told {
            Verifying::Damage(error) => bar.suspend(|| {
                let line = writeln!(out, "damage: {error}").and_then(|()| out.flush());
                written = std::mem::replace(&mut written, Ok(())).and(line);
            }),
            Verifying::Progress { done_bytes, total_bytes } => {
                bar.set_length(total_bytes);
                bar.set_position(done_bytes);
            }
            _ => {}
        };
        let verified = store::verify(&self.dir, self.keyspace.as_deref(), &mut watch);
        bar.finish_and_clear();
        let verified = verified?;
        let written = written
            .and_then(|()| writeln!(out, "{}", summary(&verified)))
            .and_then(|()| out.flush())
            .map_err(|e| Error::output(&e));
        // Also where nobody reads what was found any more.
        match verified.damages {
            0 => written,
            1 => Err(Error::runtime(format!("{}: there is damage", self.dir.display()))),
            count => {
                Err(Error::runtime(format!("{}: there are {count} damages", self.dir.display())))
            }
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// A file of a database, or its directory: then each file is a line
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Of a table tell each block, too
    #[arg(long)]
    blocks: bool,
}

impl Inspect {
    pub fn run(self) -> Result<()> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut written = Ok(());
        let looked = store::inspect(&self.path, self.blocks, &mut |line| {
            if written.is_ok() {
                written = writeln!(out, "{line}");
            }
        });
        looked.and(written.and_then(|()| out.flush()).map_err(|e| Error::output(&e)))
    }
}

/// What was looked at, in a line.
fn summary(of: &Verified) -> String {
    let found = match of.damages {
        0 => "no damage".to_owned(),
        1 => "1 damage".to_owned(),
        count => format!("{} damages", show_count(count)),
    };
    let [tables, blocks, entries, filters, segments, values, records, operations] = [
        of.tables,
        of.blocks,
        of.entries,
        of.filters,
        of.segments,
        of.values,
        of.log_records,
        of.log_operations,
    ]
    .map(show_count);
    let dropped = match of.dropped_records {
        0 => String::new(),
        count => format!(
            " ({} behind its end, which were never synced, an open drops)",
            show_count(count)
        ),
    };
    format!(
        "checked the manifest; the log, {records} records of {operations} operations{dropped}; {tables} tables, {blocks} blocks of \
         {entries} entries, {filters} filters; {segments} value segments, {values} values: {found}"
    )
}

/// On standard error, if that is a terminal.
fn progress_bar() -> ProgressBar {
    let template = "verify [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    let bar = ProgressBar::new(0).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
