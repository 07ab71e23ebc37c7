//! Straight graphs of kernels: each node but the first comes after one other.

use std::ptr::{null, null_mut};

use bulkhead_gpu::Launch;
use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode};

use super::{Code, Driver, Function, Stream, calls::LaunchBuffer};

/// Such a graph, instantiated. It is destroyed by [`Driver::chain_destroy`] alone.
pub(crate) struct Chain {
    graph: usize,
    executable: usize,
    nodes: Vec<usize>,
}

pub(super) fn pointer<T>(bits: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(bits)
}

/// Calls `then` with a kernel's parameters in the form that nodes take.
pub(super) fn with_parameters<R>(
    function: Function,
    launch: &Launch<'_>,
    then: impl FnOnce(&CUDA_KERNEL_NODE_PARAMS) -> R,
) -> R {
    let mut buffer = LaunchBuffer::new(launch.parameters);
    let [grid_x, grid_y, grid_z] = launch.grid;
    let [block_x, block_y, block_z] = launch.block;
    let parameters = CUDA_KERNEL_NODE_PARAMS {
        func: function.pointer(),
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: launch.shared_bytes,
        kernelParams: null_mut(),
        extra: buffer.extra(),
        kern: null_mut(),
        ctx: null_mut(),
    };
    then(&parameters)
}

impl Driver {
    /// Makes a graph of these kernels.
    pub(crate) fn chain_make<'a>(
        &self,
        nodes: impl Iterator<Item = (Function, &'a Launch<'a>)>,
    ) -> Result<Chain, Code> {
        let mut graph: CUgraph = null_mut();
        // SAFETY: `graph` outlives the call, and there are no flags.
        Code::check(unsafe { (self.graph_create)(&raw mut graph, 0) })?;
        let mut chain = Chain { graph: graph.expose_provenance(), executable: 0, nodes: Vec::new() };
        match self.chain_fill(&mut chain, nodes) {
            Ok(()) => Ok(chain),
            Err(code) => {
                // The first error is the one to tell.
                self.chain_destroy(chain).ok();
                Err(code)
            }
        }
    }

    fn chain_fill<'a>(
        &self,
        chain: &mut Chain,
        nodes: impl Iterator<Item = (Function, &'a Launch<'a>)>,
    ) -> Result<(), Code> {
        for (function, launch) in nodes {
            let before: Option<CUgraphNode> = chain.nodes.last().map(|node| pointer(*node));
            let (from, count) = before.as_ref().map_or((null(), 0), |node| (std::ptr::from_ref(node), 1));
            let mut node: CUgraphNode = null_mut();
            let added = with_parameters(function, launch, |parameters| {
                // SAFETY: the graph lives; the function is pinned in its table, and its buffer holds as many bytes as it has
                // parameters (checked by the caller); the driver copies it, and the one node before it, before it returns.
                unsafe {
                    (self.graph_add_kernel)(&raw mut node, pointer(chain.graph), from, count, parameters)
                }
            });
            Code::check(added)?;
            chain.nodes.push(node.expose_provenance());
        }
        let mut executable: CUgraphExec = null_mut();
        // SAFETY: the graph lives, `executable` outlives the call, and there are no flags.
        Code::check(unsafe { (self.graph_instantiate)(&raw mut executable, pointer(chain.graph), 0) })?;
        chain.executable = executable.expose_provenance();
        Ok(())
    }

    /// Gives the graph's nodes other kernels, in their order. What it launched before launches what it did.
    pub(crate) fn chain_set<'a>(
        &self,
        chain: &Chain,
        nodes: impl Iterator<Item = (Function, &'a Launch<'a>)>,
    ) -> Result<(), Code> {
        chain.nodes.iter().zip(nodes).try_for_each(|(node, (function, launch))| {
            Code::check(with_parameters(function, launch, |parameters| {
                // SAFETY: graph and node live; the rest as for `chain_fill`.
                unsafe { (self.graph_set_kernel)(pointer(chain.executable), pointer(*node), parameters) }
            }))
        })
    }

    pub(crate) fn chain_launch(&self, chain: &Chain, stream: Stream) -> Result<(), Code> {
        // SAFETY: the graph lives, and the stream is pinned in its table.
        Code::check(unsafe { (self.graph_launch)(pointer(chain.executable), stream.pointer()) })
    }

    /// Destroys a graph all of whose launches have passed.
    pub(crate) fn chain_destroy(&self, chain: Chain) -> Result<(), Code> {
        let executable = if chain.executable == 0 {
            Ok(())
        } else {
            // SAFETY: it lives, and nobody has it after this.
            Code::check(unsafe { (self.graph_executable_destroy)(pointer(chain.executable)) })
        };
        // SAFETY: likewise.
        let graph = Code::check(unsafe { (self.graph_destroy)(pointer(chain.graph)) });
        executable.and(graph)
    }
}
