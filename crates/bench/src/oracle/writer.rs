//! The writer of kill tests: goes on until it is killed or has done what was asked.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::{AckLog, Setup, Stream};
use crate::engines::{Engine, OpenSettings, opener};
use crate::keys::KeySet;
use crate::values::Values;
use crate::{Error, Result};

/// What a writer does.
#[derive(Debug, Clone)]
pub struct WriterPlan {
    /// The engine's name.
    pub engine: String,
    /// How to open it.
    pub open: OpenSettings,
    /// What the verifier must know too.
    pub setup: Setup,
    /// The acknowledgement file; standard output if `None`. An existing one is continued, which it
    /// must be sealed for.
    pub acks: Option<PathBuf>,
    /// Operations per thread after which to stop.
    pub operations: u64,
}

/// Runs the writer.
///
/// # Errors
/// If the engine fails, acknowledgements cannot be written, or an existing file does not fit.
pub fn write(plan: &WriterPlan) -> Result<()> {
    let setup = &plan.setup;
    let keys = setup.keys.make(setup.seed)?.set;
    if setup.threads > keys.len() {
        return Err(Error::usage(format!(
            "{} writer threads cannot share {} keys",
            setup.threads,
            keys.len()
        )));
    }
    let (output, done) = open_acks(plan)?;
    let output = Mutex::new(output);
    let engine = opener(&plan.engine)?(&plan.open)?;
    let values = Values::new(setup.value_size, setup.seed);
    let writer = Writer { plan, keys: &keys, values: &values, engine: engine.as_ref(), output };
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..setup.threads)
            .map(|thread| {
                let (writer, done) = (&writer, done[thread]);
                scope.spawn(move || writer.run(thread, done))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    outcomes.into_iter().collect::<Result<()>>()?;
    drop(writer);
    engine.close()
}

/// Where acknowledgements go, and how many operations each thread has behind it.
fn open_acks(plan: &WriterPlan) -> Result<(Box<dyn Write + Send>, Vec<u64>)> {
    let header = format!("{}\n", plan.setup);
    let fresh = vec![0; plan.setup.threads];
    let Some(path) = &plan.acks else {
        let mut output = std::io::stdout();
        output
            .write_all(header.as_bytes())
            .and_then(|()| output.flush())
            .map_err(|e| Error::output(&e))?;
        return Ok((Box::new(output), fresh));
    };
    let exists = path.exists();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|e| Error::io("open it", path, &e))?;
    // From now on operations may be under way, also if none is ever acknowledged.
    let begins = |first: u64| format!("0 {first}\n");
    if !exists {
        let text = header + &begins(0);
        file.write_all(text.as_bytes()).map_err(|e| Error::io("write to it", path, &e))?;
        return Ok((Box::new(file), fresh));
    }
    let log = AckLog::read(path)?;
    if log.setup != plan.setup {
        return Err(Error::usage(format!(
            "{}: written with other settings: `{}`, not `{}`",
            path.display(),
            log.setup,
            plan.setup
        )));
    }
    if !log.sealed {
        return Err(Error::usage(format!(
            "{}: the last writer was not verified; run verify --seal first",
            path.display()
        )));
    }
    file.write_all(begins(log.acknowledged[0]).as_bytes())
        .map_err(|e| Error::io("write to it", path, &e))?;
    Ok((Box::new(file), log.acknowledged))
}

struct Writer<'a> {
    plan: &'a WriterPlan,
    keys: &'a KeySet,
    values: &'a Values,
    engine: &'a dyn Engine,
    output: Mutex<Box<dyn Write + Send>>,
}

impl Writer<'_> {
    /// Thread `thread`, with `done` operations behind it.
    fn run(&self, thread: usize, done: u64) -> Result<()> {
        let setup = &self.plan.setup;
        let stream = Stream::new(setup.seed, self.keys.len(), thread, setup.threads);
        let mut value = Vec::new();
        let mut count = done;
        let until = done.saturating_add(self.plan.operations);
        for step in stream.skip(done as usize) {
            if count == until {
                break;
            }
            let key = self.keys.key(step.index);
            let key = key.as_ref();
            if step.removes {
                self.engine.remove(key)?;
            } else {
                self.values.fill(key, step.version, &mut value);
                self.engine.insert(key, &value)?;
            }
            count += 1;
            if (count - done).is_multiple_of(setup.batch) || count == until {
                self.acknowledge(thread, count)?;
            }
        }
        Ok(())
    }

    /// Writes one line with one call, so that a kill cuts at most its end.
    fn acknowledge(&self, thread: usize, count: u64) -> Result<()> {
        let line = format!("{thread} {count}\n");
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output
            .write_all(line.as_bytes())
            .and_then(|()| output.flush())
            .map_err(|e| Error::runtime(format!("could not write an acknowledgement: {e}")))
    }
}
