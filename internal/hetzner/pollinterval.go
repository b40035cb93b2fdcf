package hetzner

import (
	"sync"
	"time"
)

// pollIntervals are the times after which actions are polled first: how long each
// kind usually takes, as far as polling can tell.
type pollIntervals struct {
	mu  sync.Mutex
	all map[string]*pollInterval // by command
}

type pollInterval struct {
	usual  time.Duration
	streak int // actions in a row that no look came too early for
	// sufficed is the latest wait that was long enough. Where a longer one is too
	// short, times vary; that is believed for so many actions.
	sufficed time.Duration
	varying  int
}

const (
	// firstGuess is for actions that nobody waited for yet.
	firstGuess = 500 * time.Millisecond
	// variesFor is for how many actions times are taken to vary.
	variesFor = 50
	// stepUp and stepDown, in percent, are how fast the guess follows times that
	// vary.
	stepUp, stepDown = 4, 5
)

func newPollIntervals() *pollIntervals { return &pollIntervals{all: map[string]*pollInterval{}} }

// guess is when to look for the first time.
func (h *pollIntervals) guess(command string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.all[command]; known != nil {
		return known.guess()
	}
	return firstGuess
}

func (h *pollInterval) guess() time.Duration { return min(max(h.usual, shortestGap), longestGap) }

// learn corrects the guess, after so many looks that came too early; running is
// how long the action has been seen to run.
//
// An action that was over when it was due may have been over for long, which its
// timestamps don't tell: they are in whole seconds. So the guess shrinks, faster
// and faster, until a look comes too early, and then goes back to what that
// action took. Where times vary, it steps up and down almost alike instead,
// and so follows their middle: about half the actions are over by then.
func (h *pollIntervals) learn(command string, early int, running, waited time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.all[command]
	if known == nil {
		known = &pollInterval{usual: firstGuess}
		h.all[command] = known
	}
	known.learn(early, running, waited)
}

func (h *pollInterval) learn(early int, running, waited time.Duration) {
	guessed := h.guess()
	h.varying = max(0, h.varying-1)
	switch {
	case early == 0:
		h.sufficed = guessed
	case h.sufficed > 0 && h.sufficed < guessed:
		h.varying = variesFor
	}
	switch {
	case h.varying > 0 && early > 0:
		h.usual = guessed * (100 + stepUp) / 100
	case h.varying > 0:
		h.usual = max(running, guessed*(100-stepDown)/100)
	case early > 0:
		h.usual, h.streak = waited, 0
	default:
		shrink := min(2<<h.streak, 30) // percent
		h.usual = max(running, waited*time.Duration(100-shrink)/100)
		h.streak = min(h.streak+1, 5)
	}
}
