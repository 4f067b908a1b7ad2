//! Positions of a graph's nodes: layers from the top, with each node below all of its dependencies.
//!
//! The simple form of layered drawing: a node's layer is the length of the longest path to it, and its column is its
//! number within the layer. One departure: within each layer nodes are sorted by the middle of their neighbours'
//! columns, down and up a few times, which removes most crossings. Then each layer is centred.
//! Invariants: **downwards**: every edge goes from a layer to a later one. **apart**: columns of a layer are at least 1
//! apart.

/// The number of sweeps through the layers, down and up.
const SWEEPS: usize = 6;

/// Returns the column and the layer of each of `count` nodes. Edges that name no node or close a cycle are ignored,
/// because a recording may be damaged.
pub fn layered(count: usize, edges: &[(u32, u32)]) -> Vec<(f64, u32)> {
    let (mut after, mut before) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(from, to) in edges.iter().filter(|&&(from, to)| from != to && (from.max(to) as usize) < count) {
        after[from as usize].push(to as usize);
        before[to as usize].push(from as usize);
    }
    let layer = longest_paths(&after, &before);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); layer.iter().max().map_or(0, |&most| most as usize + 1)];
    for (node, &at) in layer.iter().enumerate() {
        rows[at as usize].push(node);
    }
    let mut column = vec![0.0; count];
    for row in &rows {
        spread(row, &mut column);
    }
    for sweep in 0..SWEEPS {
        let neighbours = if sweep % 2 == 0 { &before } else { &after };
        for at in 0..rows.len() {
            let at = if sweep % 2 == 0 { at } else { rows.len() - 1 - at };
            let middle = |node: usize| match neighbours[node].len() {
                0 => column[node],
                many => neighbours[node].iter().map(|&other| column[other]).sum::<f64>() / many as f64,
            };
            let mut sorted: Vec<(f64, usize)> = rows[at].iter().map(|&node| (middle(node), node)).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            rows[at] = sorted.into_iter().map(|(_, node)| node).collect();
            spread(&rows[at], &mut column);
        }
    }
    let left = column.iter().copied().fold(f64::INFINITY, f64::min);
    column.into_iter().map(|at| at - left).zip(layer).collect()
}

/// Places a row's nodes one column apart, centred on 0.
fn spread(row: &[usize], column: &mut [f64]) {
    for (at, &node) in row.iter().enumerate() {
        column[node] = at as f64 - (row.len() - 1) as f64 / 2.0;
    }
}

/// Returns the number of nodes on the longest path to each node. Nodes on a cycle keep what was computed until then.
fn longest_paths(after: &[Vec<usize>], before: &[Vec<usize>]) -> Vec<u32> {
    let mut layer = vec![0; after.len()];
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..after.len()).filter(|&node| missing[node] == 0).collect();
    while let Some(node) = ready.pop() {
        for &next in &after[node] {
            layer[next] = layer[next].max(layer[node] + 1);
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(next);
            }
        }
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(count: usize, edges: &[(u32, u32)]) -> Vec<(f64, u32)> {
        let places = layered(count, edges);
        assert_eq!(places.len(), count);
        for &(from, to) in edges {
            assert!(places[from as usize].1 < places[to as usize].1, "downwards: {from} to {to}");
        }
        for a in 0..count {
            for b in 0..a {
                let (a, b) = (places[a], places[b]);
                assert!(a.1 != b.1 || (a.0 - b.0).abs() >= 1.0, "apart: {a:?} and {b:?}");
            }
        }
        places
    }

    #[test]
    fn edges_go_down_and_nodes_stand_apart() {
        holds(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        // Random edges, each to a later node.
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let edges: Vec<(u32, u32)> =
            (1..60).flat_map(|to| [(random(to) as u32, to as u32), (random(to) as u32, to as u32)]).collect();
        holds(60, &edges);
    }

    #[test]
    fn chains_that_do_not_meet_do_not_cross() {
        // Two chains that cross between all layers if nodes stay in the order of their numbers.
        let places = holds(6, &[(0, 3), (1, 2), (2, 5), (3, 4)]);
        let left = |node: usize| places[node].0;
        assert_eq!(left(0) < left(1), left(3) < left(2));
        assert_eq!(left(3) < left(2), left(4) < left(5));
    }

    #[test]
    fn damaged_edges_are_passed_over() {
        assert_eq!(layered(0, &[(0, 1)]), []);
        assert_eq!(layered(2, &[(0, 9), (1, 1)]), [(0.0, 0), (1.0, 0)]);
        assert_eq!(layered(3, &[(0, 1), (1, 0), (1, 2)]).len(), 3, "a circle ends");
    }
}
