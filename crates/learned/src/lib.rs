//! Learned indexes over sorted keys.
