//! The rules of checks, graphs and pools, case by case and against plain searches.

mod check_effects;
mod check_flat;
mod check_hostile;
mod check_repeated;
mod check_trust;
mod graph_backing;
mod graph_capture;
mod graph_exec;
mod graph_order;
mod graph_validate;
mod pool_cases;
mod pool_pressure;
