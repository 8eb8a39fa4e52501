//! What is wrong with a comparison is found before its first run, and not hours later.

use super::child::Job;
use crate::engines::OpenSettings;
use crate::{Result, suite};

/// Reads the arguments of every job as its process will, and opens each engine once with each of
/// its settings, on a store that is removed again.
///
/// # Errors
/// Those of the arguments, and of the engines.
pub(super) fn check(jobs: &[Job]) -> Result<()> {
    let mut opened: Vec<(String, OpenSettings)> = Vec::new();
    for job in jobs {
        let within = |e: crate::Error| e.within(&format!("{}: {}", job.case.name, job.engine));
        let plan = job.plan().map_err(within)?;
        let settings = (plan.engine.clone(), plan.open.clone());
        if !opened.contains(&settings) {
            suite::try_to_open(&plan).map_err(within)?;
            opened.push(settings);
        }
    }
    Ok(())
}
