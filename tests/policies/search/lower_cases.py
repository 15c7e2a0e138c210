"""Writes lower_cases.jsonl, which lower_test.cc reads. Run by hand, where a case changes:

    build/setup/python/bin/python tests/policies/search/lower_cases.py build/dev/bin/kevin-evaluator

A case is a reference on small tensors, with the inputs of `element` below (lower_test.cc has the same numbers). Its graph
is the evaluator's; what it gives is computed by PyTorch in double precision and stored as three sums an output.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import typing

import torch

OPERATORS = r"torch\.([a-z_0-9]+)\("  # Python's torch does not have all of ATen
cases = {}


# `inputs` is "NAME:SIZES[:KIND]"; KIND is i9 (integers below 9), b (bool), p (from 0 to 1), s (-1 or 1), else from -1.7
# to 1.7. `results` is the number of outputs. `node` stands in for the graph of a reference that torch cannot trace.
def case(name, inputs, body, results=1, node=None):
    cases[name] = (inputs, body, results, node)


x4='x:2,6,7,5'
case('gather', 'x:5,6 i:3,6:i5', 'return torch.gather(x, 0, i)')
case('gather1', 'x:5,6 i:5,4:i6', 'return torch.gather(torch.tanh(x)*2.0+x, 1, i)')
case('embedding', 'w:11,6 i:3,4:i11', 'return torch.embedding(w, i)')
case('index_select', 'x:4,7,3 i:5:i7', 'return torch.index_select(x, 1, i)')
case('index1', 'x:4,7,3 i:5:i4', 'return torch.index(x, [i])')
case('index_py', 'x:4,7,3 i:5:i4 j:5:i3', 'return x[i, :, j]')
case('index_py2', 'x:4,7,3 i:5:i7 j:2,5:i3', 'return x[:, i - 7, j]')
case('index_py3', 'x:4,7,3 i:3,1:i4 j:1,2:i7', 'return x[i, j]')
case('take_along', 'x:4,7 i:4,2:i7', 'return torch.take_along_dim(x, i, 1)')
case('take', 'x:4,7 i:3,2:i28', 'return torch.take(x, i)')
case('tril', 'x:2,5,7', 'return torch.tril(x, 1) + torch.triu(x, -2)')
case('diagonal', 'x:3,5,7', 'return torch.diagonal(x, 2, 1, 2)')
case('diagonal2', 'x:3,5,7', 'return torch.diagonal(x, -1, 2, 0)')
case('diag', 'x:5', 'return torch.diag(x, -2)')
case('diag_embed', 'x:3,5', 'return torch.diag_embed(x, 1)')
case('diag_vec', 'x:5,6', 'return torch.diag(x, 1)')
case('pad', 'x:2,3,4,5', 'return torch.constant_pad_nd(x, [1, 2, -1, 3], 0.5)')
case('pad_const',x4,'return torch.pad(x, [1, 2, 0, 3])')
case('pad_reflect',x4,'return torch.pad(x, [1, 2, 3, 0], "reflect")')
case('pad_repl',x4,'return torch.pad(torch.exp(x), [1, 2, 3, 1], "replicate")')
case('pad_circ',x4,'return torch.pad(x, [1, 2, 3, 0], "circular")')
case('reflection_pad1d', 'x:2,3,6', 'return torch.reflection_pad1d(x, [2, 3])')
case('reflection_pad3d', 'x:2,3,4,5,6', 'return torch.reflection_pad3d(x, [2, 3, 1, 1, 0, 2])')
case('replication_pad3d', 'x:2,3,4,5,6', 'return torch.replication_pad3d(x, [2, 3, 1, 1, 0, 2])')
case('flip',x4,'return torch.flip(x, [1, -1])')
case('roll',x4,'return torch.roll(x, [2, -9], [1, 2])')
case('roll_flat', 'x:3,4', 'return torch.roll(x, [5], [])')
case('repeat', 'x:3,4', 'return x.repeat([2, 1, 3])')
case('tile', 'x:3,4', 'return torch.tile(x, [2, 2])')
case('repeat_interleave', 'x:3,4', 'return torch.repeat_interleave(x, 3, 1)')
case('repeat_interleave0', 'x:3,4', 'return torch.repeat_interleave(x, 2)')
case('pixel_shuffle', 'x:2,12,3,5', 'return torch.pixel_shuffle(x, 2)')
case('pixel_unshuffle', 'x:2,3,6,4', 'return torch.pixel_unshuffle(x, 2)')
case('channel_shuffle', 'x:2,6,3,5', 'return torch.channel_shuffle(x, 3)')
case('unfold', 'x:2,10', 'return x.unfold(1, 4, 3)')
case('near1', 'x:2,3,5', 'return torch.upsample_nearest1d(x, [13])')
case('near2',x4,'return torch.upsample_nearest2d(x, None, [2.0, 3.0])')
case('near2b',x4,'return torch.upsample_nearest2d(x, None, [1.7, 2.3])')
case('near3', 'x:2,2,3,4,5', 'return torch.upsample_nearest3d(x, [5, 7, 3])')
case('nearex',x4,'return torch._upsample_nearest_exact2d(x, None, [1.7, 0.6])')
case('lin1', 'x:2,3,5', 'return torch.upsample_linear1d(x, [13], False)')
case('lin1a', 'x:2,3,5', 'return torch.upsample_linear1d(x, [13], True)')
case('bil',x4,'return torch.upsample_bilinear2d(x, None, False, [2.0, 2.0])')
case('bila',x4,'return torch.upsample_bilinear2d(x, [11, 3], True)')
case('bils',x4,'return torch.upsample_bilinear2d(x, None, False, [1.7, 2.3])')
case('bildown',x4,'return torch.upsample_bilinear2d(x, [3, 2], False)')
case('tril3', 'x:2,2,3,4,5', 'return torch.upsample_trilinear3d(x, [6, 8, 7], False)')
case('one_hot', 'i:3,4:i6', 'return torch.one_hot(i, 6)')
case('meshgrid', 'x:4 y:5', 'a = torch.meshgrid([x, y], indexing="xy")\nreturn a[0] * a[1] + a[0]')
case('scatter', 'x:4,7 s:2,7', 'i = torch.arange(2).unsqueeze(1).expand(2, 7)\nreturn torch.scatter(x, 0, i + 1, s)')
case('scatter_add', 'x:4,7 i:6,7:i4 s:6,7', 'return torch.scatter_add(x, 0, i, s)')
case('index_put', 'x:4,7 s:2,7', 'y = x.clone()\ny[torch.arange(2) + 1] = s\nreturn y')
case('slice_put', 'x:4,7 s:4,2', 'y = x * 2.0\ny[:, 1:5:2] = s\nreturn y')
case('select_put', 'x:4,7 s:7', 'y = x * 2.0\ny[1] = s\nreturn y')
case('fill_put', 'x:4,7', 'y = x * 2.0\ny[:, 0] = 1.0\ny[2, 1:] *= 3.0\nreturn y')
case('diag_put', 'x:4,7 s:4', 'return torch.diagonal_scatter(x, s, 1)')
case('creation', 'x:4,5', 'return x + torch.eye(4, 5) + torch.arange(5) * 0.5 + torch.linspace(0.0, 1.0, 5) + torch.full([4, 1], 2.5) + torch.ones_like(x) + torch.zeros([5]) + x.new_ones([4, 5]) + torch.full_like(x, 3.0)')
case('arange_f', 'x:5', 'return x * torch.arange(0.5, 3.0, 0.5)')
case('arange_i', 'x:5', 'return x * torch.arange(2, 12, 2)')
# losses
p='x:6,9 t:6,9'
for n,a in [('mse_loss',''),('l1_loss',''),('smooth_l1_loss','0.5'),('huber_loss','0.7')]:
    for r in (0,1,2): case(f'{n}{r}',p,f'return torch.{n}(x, t, {r}{", "+a if a else ""})')
case('soft_margin', 'x:6,9 t:6,9:s', 'return torch.soft_margin_loss(x, t)')
case('hinge_emb', 'x:6,9 t:6,9:s', 'return torch.hinge_embedding_loss(x, t, 0.3, 1)')
case('kl', 'x:6,9 t:6,9:p', 'return torch.kl_div(torch.log_softmax(x, 1), t, 2)')
case('kl_log', 'x:6,9 t:6,9', 'return torch.kl_div(x, t, 1, log_target=True)')
case('bce', 'x:6,9:p t:6,9:p w:9', 'return torch.binary_cross_entropy(x, t, w, 1)')
case('margin_rank', 'x:6 y:6 t:6:s', 'return torch.margin_ranking_loss(x, y, t, 0.2, 1)')
case('triplet', 'x:6,9 y:6,9 z:6,9', 'return torch.triplet_margin_loss(x, y, z, 1.0, 2.0, 1e-6, True, 1)')
case('triplet1', 'x:6,9 y:6,9 z:6,9', 'return torch.triplet_margin_loss(x, y, z, 1.0, 1.0, 1e-6, False, 0)')
case('cos_emb', 'x:6,9 y:6,9 t:6:s', 'return torch.cosine_embedding_loss(x, y, t, 0.1, 1)')
case('cos_sim', 'x:6,9 y:6,9', 'return torch.cosine_similarity(x, y, 1, 1e-8)')
case('cos_sim2', 'x:6,4,9 y:1,4,9', 'return torch.cosine_similarity(x, y, -2, 1e-8)')
case('pairwise', 'x:6,9 y:6,9', 'return torch.pairwise_distance(x, y, 2.0, 1e-6, True)')
case('ce', 'x:6,9 t:6:i9', 'return torch.cross_entropy_loss(x, t)')
case('ce_sum', 'x:6,9 t:6:i9', 'return torch.cross_entropy_loss(x, t, None, 2, -100, 0.0)')
case('ce_prob', 'x:6,9,3 t:6,9,3:p w:9:p', 'return torch.cross_entropy_loss(x, t, w, 1, -100, 0.2)')
case('nll', 'x:6,9 t:6:i9 w:9:p', 'return torch.nll_loss_nd(torch.log_softmax(x, 1), t, w, 1, 2)')
# attention
q='q:2,3,10,8 k:2,3,12,8 v:2,3,12,5'
case('sdpa',q,'return torch.scaled_dot_product_attention(q, k, v)')
case('sdpa_mask',q+' m:10,12','return torch.scaled_dot_product_attention(q, k, v, m)')
case('sdpa_bool',q+' m:2,1,10,12:b','return torch.scaled_dot_product_attention(q, k, v, torch.logical_or(m, torch.arange(12) < 2))')
case('sdpa_causal', 'q:2,3,10,8 k:2,3,10,8 v:2,3,10,5', 'return torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=0.7)')
case('sdpa_gqa', 'q:2,6,10,8 k:2,2,12,8 v:2,2,12,5', 'return torch.scaled_dot_product_attention(q, k, v, None, 0.0, False, enable_gqa=True)')
case('att_mat',q,'s = torch.matmul(q, k.transpose(-2, -1)) / 2.0\nreturn torch.matmul(torch.softmax(s, -1), v)')
case('att_bias',q+' b:3,10,12','s = torch.matmul(q * 0.35, k.transpose(-2, -1)) + b\nreturn torch.matmul(torch.softmax(s, -1), v)')
case('att_tril', 'q:2,3,10,8 k:2,3,10,8 v:2,3,10,5', 's = torch.matmul(q, k.transpose(-2, -1)) * 0.3\nm = torch.tril(torch.ones([10, 10])).view([1, 1, 10, 10])\ns = torch.masked_fill(s, m == 0, float("-inf"))\nreturn torch.matmul(torch.softmax(s, -1), v)')
case('att_where', 'q:2,3,10,8 k:2,3,10,8 v:2,3,10,5', 's = torch.matmul(q, k.transpose(-2, -1)) * 0.3\nm = torch.arange(10).unsqueeze(0) <= torch.arange(10).unsqueeze(1)\ns = torch.where(m, s, torch.full([], float("-inf")))\nreturn torch.matmul(torch.softmax(s, -1), v)')
case('att_bmm', 'x:2,10,12 w:36,12', 'y = torch.linear(x, w).view([2, 10, 3, 3, 4]).permute([2, 0, 3, 1, 4])\nq = y[0].reshape([6, 10, 4])\nk = y[1].reshape([6, 10, 4])\nv = y[2].reshape([6, 10, 4])\ns = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.5, -1)\nreturn torch.bmm(s, v).view([2, 3, 10, 4]).transpose(1, 2).reshape([2, 10, 12])')
case('att_relu', 'q:2,3,10,8 k:2,3,12,8 v:2,3,12,5', 'return torch.matmul(torch.relu(torch.matmul(q, k.transpose(-2, -1))), v)')
case('att_two_users',q,'s = torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1)\nreturn torch.matmul(s, v).sum() + s.amax()')
case('att_dim1',q,'s = torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -2)\nreturn torch.matmul(s, v)')
case('att_transposed',q.replace('v:2,3,12,5','v:2,3,10,5'),'s = torch.softmax(torch.matmul(q, k.transpose(-2, -1)).transpose(-2, -1), -1)\nreturn torch.matmul(s, v)')
case('att_chan', 'x:2,16,30 y:2,16,30 z:2,16,30', 's = torch.softmax(torch.matmul(x.transpose(1, 2), y), -1)\nreturn torch.matmul(s, z.transpose(1, 2)).transpose(1, 2)')
case('att_bcast', 'q:2,3,10,8 k:12,8 v:1,3,12,5', 's = torch.softmax(torch.matmul(q, k.t()), -1)\nreturn torch.matmul(s, v)')
# recurrent
def rnn(kind, T,B,K,H,L,bi,bf,bias=True):
    g={'lstm':4,'gru':3,'rnn_tanh':1,'rnn_relu':1}[kind]; d=2 if bi else 1
    ins=[f'x:{B},{T},{K}' if bf else f'x:{T},{B},{K}', f'h:{L*d},{B},{H}']; names=[]
    if kind=='lstm': ins.append(f'c:{L*d},{B},{H}')
    for l in range(L):
        for e in range(d):
            k=K if l==0 else H*d
            for n,s in [('i',f'{g*H},{k}'),('h',f'{g*H},{H}')]+([('b',f'{g*H}'),('e',f'{g*H}')] if bias else []):
                nm=f'w{n}{l}{e}'; names.append(nm); ins.append(f'{nm}:{s}')
    hx='[h, c]' if kind=='lstm' else 'h'
    return ' '.join(ins), f'return torch.{kind}(x, {hx}, [{", ".join(names)}], {bias}, {L}, 0.0, False, {bool(bi)}, {bool(bf)})'
for k in ('lstm','gru','rnn_tanh','rnn_relu'):
    n=3 if k=='lstm' else 2
    i,b=rnn(k,5,3,4,6,1,0,0); case(k,i,b,n)
    i,b=rnn(k,5,3,4,6,2,1,1); case(k+'_bi',i,b,n)
    i,b=rnn(k,1,1,4,6,2,0,1,False); case(k+'_t1',i,b,n)
case('lstm_cell', 'x:3,4 h:3,6 c:3,6 w:24,4 u:24,6 b:24 e:24', 'return torch.lstm_cell(x, [h, c], w, u, b, e)',2)
case('gru_cell', 'x:3,4 h:3,6 w:18,4 u:18,6 b:18 e:18', 'return torch.gru_cell(x, h, w, u, b, e)')
case('rnn_cell', 'x:3,4 h:3,6 w:6,4 u:6,6', 'return torch.rnn_tanh_cell(x, h, w, u)')
case('loop', 'x:20,3,4 h:3,6 w:6,4 u:6,6', 'outs = []\nfor t in range(20):\n    h = torch.tanh(torch.linear(x[t], w) + torch.linear(h, u))\n    outs.append(h * 2.0)\nreturn torch.stack(outs) + h')
case('loop_put', 'x:20,3,4', 'y = torch.zeros_like(x)\nh = x[0]\nfor t in range(20):\n    h = h * 0.5 + x[19 - t]\n    y[t] = h\nreturn y')
case('loop_scan', 'x:2,20,3 a:2,20,3', 'h = torch.zeros([2, 3])\nouts = []\nfor t in range(20):\n    h = torch.sigmoid(a[:, t]) * h + x[:, t]\n    outs.append(h)\nreturn torch.stack(outs, 1), h',2)


# --- Without a graph from torch: (operator, its arguments) ---
case('im2col', x4, 'return torch.im2col(x, [3, 2], [1, 2], [1, 0], [2, 1])',
     node=('im2col', {'self': 'x', 'kernel_size': [3, 2], 'dilation': [1, 2], 'padding': [1, 0], 'stride': [2, 1]}))
case('bcel', 'x:6,9 t:6,9:p w:9 q:9:p', 'return torch.binary_cross_entropy_with_logits(x, t, w, q, 1)',
     node=('binary_cross_entropy_with_logits',
           {'self': 'x', 'target': 't', 'weight': 'w', 'pos_weight': 'q', 'reduction': 1}))
case('cdist', 'x:2,6,9 y:2,5,9', 'return torch.cdist(x, y)', node=('cdist', {'x1': 'x', 'x2': 'y', 'p': 2.0, 'compute_mode': None}))
case('cdist_mm', 'x:2,30,9 y:2,5,9', 'return torch.cdist(x, y)', node=('cdist', {'x1': 'x', 'x2': 'y', 'p': 2.0, 'compute_mode': None}))
case('cdist1', 'x:6,9 y:5,9', 'return torch.cdist(x, y, 1.0)', node=('cdist', {'x1': 'x', 'x2': 'y', 'p': 1.0, 'compute_mode': None}))
for reduction in (0, 1):
    case(f'ce_all{reduction}', 'x:6,9,4 t:6,4:i9 w:9:p', f'return torch.cross_entropy_loss(x, t, w, {reduction}, 3, 0.1)',
         node=('cross_entropy_loss', {'self': 'x', 'target': 't', 'weight': 'w', 'reduction': reduction, 'ignore_index': 3,
                                      'label_smoothing': 0.1}))
case('nll2', 'x:6,9,3,2 t:6,3,2:i9', 'return torch.nll_loss_nd(x, t, None, 0, -100)',
     node=('nll_loss_nd', {'self': 'x', 'target': 't', 'weight': None, 'reduction': 0, 'ignore_index': -100}))
case('multi_margin', 'x:6,9 t:6:i9', 'return torch.multi_margin_loss(x, t)',
     node=('multi_margin_loss', {'self': 'x', 'target': 't', 'p': 1, 'margin': 1, 'weight': None, 'reduction': 1}))


def element(kind, number, count):
    places = torch.arange(count, dtype=torch.int64)
    share = ((places * 7919 + number * 1597 + 13) % 1009).double() / 1009
    if kind.startswith('i'):
        return (share * int(kind[1:])).long()
    if kind == 'b':
        return share < 0.5
    if kind == 's':
        return torch.where(share < 0.5, -1.0, 1.0).double()
    return share if kind == 'p' else (2 * share - 1) * 1.7


def parts(inputs):
    for number, text in enumerate(inputs.split()):
        name, sizes, kind = (text + ':').split(':')[:3]
        shape = [int(size) for size in sizes.split(',')]
        yield number, name, shape, kind


def reference(inputs, body):
    names = ', '.join(name for _, name, _, _ in parts(inputs))
    lines = body.replace('outs = []', 'outs: List[Tensor] = []').split('\n')
    return f'def forward({names}):\n' + ''.join(f'    {line}\n' for line in lines)


def expected(inputs, body):
    space = {'torch': torch, 'Tensor': torch.Tensor, 'List': typing.List}
    exec(re.sub(OPERATORS, r'torch.ops.aten.\1(', reference(inputs, body)), space)
    tensors = [element(kind, number, torch.Size(shape).numel()).reshape(shape) for number, _, shape, kind in parts(inputs)]
    made = space['forward'](*tensors)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def sums(tensor):
    flat = tensor.double().flatten()
    weights = (torch.arange(flat.numel()) * 31 % 17 - 8).double()
    return [float(f'{value:.9g}') for value in (flat.sum().item(), (flat * weights).sum().item(), flat.abs().sum().item())]


def problem_text(name):
    inputs, body, results, _ = cases[name]
    text = f"id = \"mine/{name}\"\nname = \"{name}\"\nfamilies = [\"x\"]\nreference = '''\n{reference(inputs, body)}'''\n"
    text += '[sizes.full]\nB = 4\n[sizes.small]\nB = 4\n'
    for _, tensor, shape, kind in parts(inputs):
        dtype = 'int64' if kind.startswith('i') else 'bool' if kind == 'b' else ''
        text += f'[[inputs]]\nname = "{tensor}"\nshape = {shape}\n'
        text += f'dtype = "{dtype}"\ndistribution = "uniform01"\n' if dtype else ''
    for number in range(results):
        text += f'[[outputs]]\nname = "out{number}"\nshape = []\n'
    return text + '[cost]\nflops = "B"\nbytes = "B"\nmin_flops = 0\nmin_bytes = "B"\n[check]\nreduction = "B"\n'


def graph_of(evaluator, name):
    inputs, _, _, node = cases[name]
    if not node:
        with tempfile.NamedTemporaryFile('w', suffix='.toml') as problem:
            problem.write(problem_text(name))
            problem.flush()
            return json.loads(subprocess.run([evaluator, 'graph', problem.name, 'small', 'fp32'], check=True,
                                             capture_output=True, text=True).stdout)
    numbers = {tensor: number for number, tensor, _, _ in parts(inputs)}
    args = {key: {'tensor': numbers[value]} if isinstance(value, str) else value for key, value in node[1].items()}
    values = [{'dtype': 'int64' if kind.startswith('i') else 'float32', 'shape': shape} for _, _, shape, kind in parts(inputs)]
    result = expected(inputs, cases[name][1])[0]
    values.append({'dtype': 'float32', 'shape': list(result.shape)})
    return {'version': 1, 'inputs': [{'name': tensor, 'value': number} for tensor, number in numbers.items()], 'values': values,
            'nodes': [{'op': node[0], 'args': args, 'results': [len(numbers)]}], 'outputs': [len(numbers)]}


def main():
    with open(os.path.join(os.path.dirname(__file__), 'lower_cases.jsonl'), 'w') as out:
        for name, (inputs, body, _, _) in cases.items():
            kinds = [kind for _, _, _, kind in parts(inputs)]
            line = {'name': name, 'kinds': kinds, 'sums': [sums(one) for one in expected(inputs, body)],
                    'graph': graph_of(sys.argv[1], name)}
            out.write(json.dumps(line, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
