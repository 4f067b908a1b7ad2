//! The checker of litmus programs: the corpus, programs word by word, and random ones compared with the model.

mod corpus;
mod files;
mod fix;
mod help;
mod model;
mod mutated;
mod names;
mod random;
mod rows;
mod verdicts;
