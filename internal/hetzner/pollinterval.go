package hetzner

import (
	"sync"
	"time"
)

// pollIntervals adapts the polls of each command's actions to their observed durations.
type pollIntervals struct {
	mu  sync.Mutex
	all map[string]*pollInterval // by command
}

// pollInterval is the time after which an action is first polled. An early poll costs a request,
// a late poll costs its delay. The API reports the end of an action in whole seconds only.
//
// An early poll lengthens the wait by a step, any other shortens it by a tenth of a step, so that
// one poll in eleven is early.
type pollInterval struct {
	wait   time.Duration
	step   float64 // as a fraction of wait
	inTime int     // consecutive polls that weren't early
}

const (
	// firstWait is the wait of a command that has not been observed yet.
	firstWait = 500 * time.Millisecond
	// searchStep applies until a poll is early. Then coarseStep replaces it, and shrinks with each
	// action by the factor narrowing to fineStep.
	searchStep, coarseStep, fineStep = 3, 0.1, 0.02
	narrowing                        = 0.9
	// share is the part of a step by which the wait shrinks.
	share = 0.1
	// smallestStep bounds a step, so that short waits still change.
	smallestStep = 2 * time.Millisecond
	// gapShare is the part of the wait between the first and the second poll.
	gapShare = 0.05
	// unlikely consecutive polls without an early one mean that actions have become faster.
	unlikely = 32
)

func newPollIntervals() *pollIntervals { return &pollIntervals{all: map[string]*pollInterval{}} }

// first returns the time from an action's acceptance to its first poll, and from there to its
// second.
func (p *pollIntervals) first(command string) (wait, gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of(command).wait
	return known, max(time.Duration(gapShare*float64(known)), shortestGap)
}

// learn adapts the wait to an action that ended between the polls sent at running and at over.
// early counts the polls after its due time that found it running.
func (p *pollIntervals) learn(command string, early int, running, over time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(command).learn(early, running, over)
}

func (p *pollIntervals) of(command string) *pollInterval {
	if p.all[command] == nil {
		p.all[command] = &pollInterval{wait: firstWait, step: searchStep}
	}
	return p.all[command]
}

func (p *pollInterval) learn(early int, running, over time.Duration) {
	step := max(time.Duration(p.step*float64(p.wait)), smallestStep)
	switch {
	case early == 0:
		if p.inTime++; p.inTime > unlikely {
			p.step = searchStep
		}
		// A batched poll before the due time may have found the action running.
		p.wait = max(p.wait-time.Duration(share*float64(step)), running)
	case p.step == searchStep:
		p.wait, p.step, p.inTime = running+(over-running)/2, coarseStep, 0
	case early > 3:
		p.wait, p.inTime = over, 0
	default:
		p.wait, p.inTime = p.wait+step, 0
	}
	p.wait = min(p.wait, longestGap)
	if p.step != searchStep {
		p.step = max(fineStep, p.step*narrowing)
	}
}
