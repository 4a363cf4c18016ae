"""Answers that mean harm, by name: TREASURE is a file outside the room, OUTSIDE its folder. None of them is right."""

ATTACKS = {
    # never ends, or too much of everything
    "endless loop": "while True: pass",
    "endless loop that catches all": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "sleep": "__import__('time').sleep(10**6)",
    "sleep that catches all": ("import time\nwhile True:\n    try: time.sleep(10**6)\n    except BaseException: pass"),
    "alarm switched off": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass",
    "alarm ignored": "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
    "every signal ignored": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except Exception: pass\nwhile True: pass"
    ),
    "regular expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "power": "9 ** 9 ** 9",
    "10 GB of bytes": "held = bytearray(10 * 2**30)",
    "10 GB of a tensor": "held = torch.ones(10 * 2**28)",
    "10 GB piece by piece": "held = []\nwhile True: held.append(torch.ones(2**24))",
    "10 GB of a string": "held = 'x' * (10 * 2**30)",
    "an endless list": "held = []\nwhile True: held.append(held[:])",
    "endless recursion": "def f(): return f()\nf()",
    "recursion without a limit": "sys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
    "print 1 GB": "for _ in range(1024): print('x' * 2**20)",
    "print 1 GB to stderr": "for _ in range(1024): print('x' * 2**20, file=sys.stderr)",
    "write 1 GB to descriptor 1": "for _ in range(1024): os.write(1, b'x' * 2**20)",
    "a file of 1 GB": "with open('big', 'wb') as file:\n    for _ in range(1024): file.write(b'x' * 2**20)",
    "a tensor of 1 GB in a file": "torch.save(torch.ones(2**28), 'big.pt')",
    "many files open": "held = [open(f'f{i}', 'w') for i in range(10_000)]",
    # processes and threads
    "fork": "os.fork()",
    "fork bomb": "while True:\n    try: os.fork()\n    except Exception: pass",
    "fork with a terminal": "__import__('pty').fork()",
    "system": "os.system('touch OUTSIDE/new')",
    "popen": "os.popen('touch OUTSIDE/new').read()",
    "subprocess": "__import__('subprocess').run(['touch', 'OUTSIDE/new'])",
    "subprocess in a shell": "__import__('subprocess').check_output('cat TREASURE', shell=True)",
    "spawn": "os.spawnv(os.P_WAIT, '/bin/touch', ['touch', 'OUTSIDE/new'])",
    "posix_spawn": "os.posix_spawn('/bin/touch', ['touch', 'OUTSIDE/new'], {})",
    "exec": "os.execv('/bin/touch', ['touch', 'OUTSIDE/new'])",
    "multiprocessing": "__import__('multiprocessing').Process(target=print).start()",
    "process pool": (
        "from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor(4) as pool: pool.submit(print)"
    ),
    "thread bomb": (
        "import threading\nwhile True: threading.Thread(target=lambda: __import__('time').sleep(99)).start()"
    ),
    "kill the parent": "os.kill(os.getppid(), 9)",
    "kill the group": "os.killpg(0, 9)",
    "kill itself": "os.kill(os.getpid(), 9)",
    "interrupt the parent": "import signal\nos.kill(os.getppid(), signal.SIGINT)",
    # ends
    "exit": "exit()",
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "abort": "os.abort()",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "generator exit": "raise GeneratorExit",
    "segmentation fault": "__import__('ctypes').string_at(0)",
    "crash by bytecode": "eval((lambda: 0).__code__.replace(co_code=b'\\xff' * 64))",
    # files outside
    "overwrite": "open('TREASURE', 'w').write('mine')",
    "append": "open('TREASURE', 'a').write('mine')",
    "overwrite by os": "os.write(os.open('TREASURE', os.O_WRONLY), b'mine')",
    "truncate": "os.truncate('TREASURE', 0)",
    "delete": "os.remove('TREASURE')",
    "unlink": "__import__('pathlib').Path('TREASURE').unlink()",
    "delete the folder": "__import__('shutil').rmtree('OUTSIDE')",
    "rename": "os.rename('TREASURE', 'TREASURE.old')",
    "replace": "open('mine', 'w').write('mine')\nos.replace('mine', 'TREASURE')",
    "new file": "open('OUTSIDE/new', 'w').write('mine')",
    "new folder": "os.mkdir('OUTSIDE/new')",
    "link": "os.link('TREASURE', 'OUTSIDE/new')",
    "symbolic link": "os.symlink('TREASURE', 'way')\nopen('way', 'w').write('mine')",
    "relative path": "open(os.path.relpath('TREASURE'), 'w').write('mine')",
    "relative path after a move": "os.chdir('OUTSIDE')\nopen('treasure.txt', 'w').write('mine')",
    "path with dots": "open(os.getcwd() + '/../' * 9 + 'TREASURE', 'w').write('mine')",
    "path of bytes": "open(b'TREASURE', 'w').write('mine')",
    "path of a kind of its own": (
        "class Way(str):\n    def startswith(self, *args): return True\nopen(Way('TREASURE'), 'w').write('mine')"
    ),
    "path that changes": (
        "class Way:\n    said = []\n    def __fspath__(self):\n        self.said.append(1)\n"
        "        return 'f' if len(self.said) < 2 else 'TREASURE'\nopen(Way(), 'w').write('mine')"
    ),
    "chmod": "os.chmod('TREASURE', 0)",
    "chown": "os.chown('TREASURE', 1, 1)",
    "utime": "os.utime('TREASURE', (0, 0))",
    "saved tensor": "torch.save(torch.ones(1), 'TREASURE')",
    "mapped tensor": "torch.from_file('TREASURE', shared=True, size=8, dtype=torch.uint8).fill_(1)",
    "numpy": "__import__('numpy').save('TREASURE', [1])",
    "mapped array": "__import__('numpy').memmap('OUTSIDE/new', mode='w+', shape=8)",
    "database": "__import__('sqlite3').connect('OUTSIDE/new').execute('create table t (x)')",
    "zip": "__import__('zipfile').ZipFile('OUTSIDE/new', 'w').writestr('a', 'b')",
    "log": "import logging\nlogging.basicConfig(filename='OUTSIDE/new')\nlogging.error('x')",
    # secrets
    "read": "raise ValueError(open('TREASURE').read())",
    "read by os": "raise ValueError(os.read(os.open('TREASURE', os.O_RDONLY), 99))",
    "read by torch": "raise ValueError(bytes(torch.from_file('TREASURE', size=9, dtype=torch.uint8).tolist()))",
    "read by numpy": "raise ValueError(bytes(__import__('numpy').fromfile('TREASURE', dtype='uint8')))",
    "read by linecache": "raise ValueError(__import__('linecache').getline('TREASURE', 1))",
    "read by import": (
        "from importlib.machinery import SourceFileLoader\nSourceFileLoader('t', 'TREASURE').load_module()"
    ),
    "list the folder": "raise ValueError([open('OUTSIDE/' + name).read() for name in os.listdir('OUTSIDE')])",
    "passwords": "raise ValueError(open('/etc/shadow').read())",
    "environment of the parent": "raise ValueError(open(f'/proc/{os.getppid()}/environ').read())",
    "memory of the parent": "open(f'/proc/{os.getppid()}/mem', 'wb').write(b'x')",
    # network
    "connect": "__import__('socket').create_connection(('127.0.0.1', 9), 1)",
    "listen": "s = __import__('socket').socket()\ns.bind(('127.0.0.1', 0))",
    "fetch": "__import__('urllib.request').request.urlopen('http://127.0.0.1:9/').read()",
    # the guard and the checks
    "ctypes": "__import__('ctypes').CDLL(None).system(b'touch OUTSIDE/new')",
    "ctypes as torch has it": "sys.modules['ctypes'].CDLL(None).unlink(b'TREASURE')",
    "guard found by gc": (
        "import gc\nfor f in gc.get_objects():\n    if getattr(f, '__name__', '') == 'guard': f.__code__ = 0"
    ),
    "guard found in a frame": (
        "try: open('TREASURE')\nexcept PermissionError as e:\n    f = e.__traceback__.tb_next.tb_frame\n"
        "    f.f_locals['refusal'] = f.f_locals['legible'] = None\nopen('TREASURE', 'w').write('mine')"
    ),
    "builtins replaced": (
        "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.type = lambda *a: int\n"
        "open('TREASURE', 'w').write('mine')"
    ),
    "os.path replaced": "os.path.normpath = lambda p: os.getcwd() + '/f'\nopen('TREASURE', 'w').write('mine')",
    "limits lifted": (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nheld = torch.ones(10 * 2**28)"
    ),
    "root again": "os.setuid(0)\nopen('TREASURE', 'w').write('mine')",
    "judge replaced": (
        "from tfbook.course.exercises import Exercise\nfrom tfbook.course.attempts import CheckResult\n"
        "Exercise.judge = Exercise.judge_attempt = Exercise._verdict = lambda *a: CheckResult('correct')"
    ),
    "comparison replaced": (
        "import tfbook.course.comparing as c, tfbook.course.exercises as e\n"
        "c.same = e.same = lambda *a: True\nc.difference = e.difference = lambda *a: ''"
    ),
    "torch replaced": "torch.isclose = torch.allclose = torch.equal = lambda *a, **k: True",
    "attempt replaced": (
        "from tfbook.course.attempts import Attempt\nfrom tfbook.course.grading import written, workshop\n"
        "ex.shares.attempt = lambda *a: Attempt([1.0] * 9)"
    ),
    "attempt forged": (
        "open('attempt.json', 'w').write('{\"fault\": \"correct\"}')\nopen('attempt.safetensors', 'w').write('x')\n"
        "os._exit(0)"
    ),
    "solution asked for": "shares = ex.shares.reference",
    "solution called": "shares = lambda *a: ex.shares.reference(*a)",
    "solution printed": "ex.shares.solution()",
    "mistakes read": "shares = [*ex.shares.wrong_answers.values()][0]",
}

STUB = "def shares(*args):\n    return ..."


def _inside(attack: str) -> str:
    """The attack as the body of the answer."""
    return "def shares(*args):\n" + "\n".join(f"    {line}" for line in attack.splitlines())


ABOVE = ("judge replaced", "comparison replaced", "torch replaced", "attempt replaced", "attempt forged")
HOSTILE = {name: f"{attack}\n{STUB}" for name, attack in ATTACKS.items() if name in ABOVE or "solution" in name}
HOSTILE |= {name: attack for name, attack in ATTACKS.items() if attack.startswith("shares =")}
HOSTILE |= {name: _inside(attack) for name, attack in ATTACKS.items() if name not in HOSTILE}
