"""Sums over ranks of tensors on real GPUs: by gloo on the host, without Ray, to the bit."""

from __future__ import annotations

from devshim.testing.ports import free_port

RANKS = """
import sys
sys.modules["ray"] = None  # it is not installed
child = os.fork()
rank = 0 if child else 1
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="NUMBER")
world = ds.world()
"""
END = """
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_tensors_on_gpus_are_added_by_gloo(run_on_each):
    """Each rank has a card, or both have the same one, as on a machine with one."""
    job = """
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
    parts = [(torch.randn(1000, generator=torch.Generator().manual_seed(n)) * 1000).to(dtype) for n in range(2)]
    x = parts[rank].to(f"cuda:{rank % torch.cuda.device_count()}")
    tree = {"x": x, "y": x[:3].clone()}
    world.all_reduce_([tree])
    assert tree["x"] is x and x.is_cuda
    assert torch.equal(x.cpu(), parts[0] + parts[1])
    assert torch.equal(tree["y"].cpu(), (parts[0] + parts[1])[:3])
    (largest,) = world.all_reduce_([parts[rank].to(x.device)], "max")
    assert torch.equal(largest.cpu(), torch.maximum(*parts))
assert "sums: gloo of torch" in world.describe()
"""
    run_on_each(RANKS.replace("NUMBER", str(free_port())) + job + END)


def test_what_needs_ray_says_so_at_once(run):
    job = """
with pytest.raises(ds.UnsupportedError, match='Ray here, and it is not installed(.|\\n)*pip install'):
    world.broadcast({"x": torch.ones(3, device=CUDA)})
"""
    run(RANKS.replace("NUMBER", str(free_port())) + job + END)
