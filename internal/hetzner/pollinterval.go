package hetzner

import (
	"sync"
	"time"
)

// pollIntervals are the times after which actions are polled, learned from when earlier ones of
// their kind were over.
type pollIntervals struct {
	mu  sync.Mutex
	all map[string]*pollInterval // by command
}

// pollInterval is when to poll an action for the first time. A poll that comes too early costs a
// request, one that comes late costs its delay, and when an action ended isn't known: its
// timestamps are in whole seconds.
//
// So a poll that came too early lengthens the wait by a step, and one that didn't shortens it by a
// share of one. With a share of a tenth one poll in eleven is too early, which is right where
// actions take all the same time. Where the second poll comes too early as well times vary, waiting
// for the last of them isn't worth a request, and the share grows, to 1 at most: then every other
// poll is too early.
type pollInterval struct {
	wait      time.Duration
	step      float64 // of the wait
	share     float64
	inTime    int  // polls in a row that didn't come too early
	searching bool // none ever did, or not for long: the wait shrinks in large steps
}

const (
	// firstWait is for actions that nobody waited for yet.
	firstWait = 500 * time.Millisecond
	// searchStep is what a search leaves of the wait with every action.
	searchStep = 0.7
	// coarseStep is the step after a search, of which narrowing is left with every action.
	coarseStep, narrowing = 0.1, 0.9
	// fineStep and varyingStep are the smallest steps, where times don't vary and where they do.
	fineStep, varyingStep = 0.02, 0.03
	// smallestStep keeps short waits moving.
	smallestStep = 2 * time.Millisecond
	// leastShare and mostShare bound a pollInterval's share.
	leastShare, mostShare = 0.1, 1.0
	// shareUp and shareDown are what it changes by.
	shareUp, shareDown = 4, 0.8
	// gapShare is the part of the wait after which to poll again, where every other poll is too
	// early; where fewer are, less.
	gapShare = 0.15
	// unlikely is how many polls in a row come too early for no action only if actions have become
	// faster.
	unlikely = 32
)

func newPollIntervals() *pollIntervals { return &pollIntervals{all: map[string]*pollInterval{}} }

// first is how long after it was accepted an action is polled for the first time, and how long
// after that for the second.
func (p *pollIntervals) first(command string) (wait, gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of(command)
	return known.wait, max(time.Duration(gapShare*known.share*float64(known.wait)), shortestGap)
}

// learn takes in that an action was over by a poll that was sent so long after it was accepted,
// after so many that came too early, the last of them sent after running.
func (p *pollIntervals) learn(command string, early int, running, over time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(command).learn(early, running, over)
}

func (p *pollIntervals) of(command string) *pollInterval {
	if p.all[command] == nil {
		p.all[command] = &pollInterval{wait: firstWait, share: leastShare, searching: true}
	}
	return p.all[command]
}

func (p *pollInterval) learn(early int, running, over time.Duration) {
	step := max(time.Duration(p.step*float64(p.wait)), smallestStep)
	switch {
	case early == 0:
		p.inTime++
		p.searching = p.searching || p.inTime > unlikely
		if p.searching {
			p.wait = time.Duration(searchStep * float64(min(p.wait, over)))
		} else {
			p.wait -= time.Duration(p.share * float64(step))
		}
		// Polled along with others before it was due, it may have told that it still ran.
		p.wait = min(max(p.wait, running), longestGap)
	case p.searching:
		p.wait, p.step, p.inTime, p.searching = running+(over-running)/2, coarseStep, 0, false
	default:
		if p.wait += step; early > 3 {
			p.wait = over
		}
		if early > 1 {
			p.share = min(p.share*shareUp, mostShare)
		} else {
			p.share = max(p.share*shareDown, leastShare)
		}
		p.wait, p.inTime = min(p.wait, longestGap), 0
	}
	finest := fineStep
	if p.share >= 3*leastShare {
		finest = varyingStep
	}
	p.step = max(finest, p.step*narrowing)
}
