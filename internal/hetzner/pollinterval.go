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
// An early poll lengthens the wait by a step, any other shortens it by share of a step. With a
// share of a tenth, one poll in eleven is early, which is right if all actions take the same
// time. If the second poll is early too, durations vary and waiting for the slowest action isn't
// worth a request: share becomes 1, at which every other first poll is early, and the second poll
// follows after a gap in which many of the others end. For durations of 200 to 600 ms, that takes
// 1.6 polls and 500 ms for each action. Polls that know the distribution take 1.4 for 500 ms, or
// 1.1 for 560 ms: nothing shows the end of a single action.
type pollInterval struct {
	wait   time.Duration
	step   float64 // as a fraction of wait
	share  float64
	inTime int // consecutive polls that weren't early
}

const (
	// firstWait is the wait of a command that has not been observed yet.
	firstWait = 500 * time.Millisecond
	// searchStep applies until a poll is early. Then coarseStep replaces it, and shrinks with each
	// action by the factor narrowing, to fineStep for constant and varyingStep for varying durations.
	searchStep, coarseStep, fineStep, varyingStep = 3, 0.1, 0.02, 0.03
	narrowing                                     = 0.9
	// These bound the share of a pollInterval, and reduce it if only the first poll was early.
	leastShare, mostShare, shareDown = 0.1, 1.0, 0.8
	// smallestStep bounds a step, so that short waits still change.
	smallestStep = 2 * time.Millisecond
	// gapShare is the part of the wait between the first and the second poll at a share of 1.
	gapShare = 0.25
	// unlikely consecutive polls without an early one mean that actions have become faster.
	unlikely = 32
)

func newPollIntervals() *pollIntervals { return &pollIntervals{all: map[string]*pollInterval{}} }

// first returns the time from an action's acceptance to its first poll, and from there to its
// second.
func (p *pollIntervals) first(command string) (wait, gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of(command)
	gap = time.Duration(gapShare * known.share * float64(known.wait))
	return known.wait, max(gap, shortestGap)
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
		p.all[command] = &pollInterval{wait: firstWait, step: searchStep, share: leastShare}
	}
	return p.all[command]
}

func (p *pollInterval) learn(early int, running, over time.Duration) {
	step := max(time.Duration(p.step*float64(p.wait)), smallestStep)
	switch {
	case early == 0:
		if p.inTime++; p.inTime > unlikely {
			p.step, p.share = searchStep, leastShare
		}
		// A batched poll before the due time may have found the action running.
		p.wait = max(p.wait-time.Duration(p.share*float64(step)), running)
	case p.step == searchStep:
		p.wait, p.step, p.inTime = running+(over-running)/2, coarseStep, 0
	default:
		if p.wait, p.inTime = p.wait+step, 0; early > 3 {
			p.wait = over
		}
		if p.share = max(p.share*shareDown, leastShare); early > 1 {
			p.share = mostShare
		}
	}
	p.wait = min(p.wait, longestGap)
	if p.step != searchStep {
		finest := fineStep
		if p.share >= 3*leastShare {
			finest = varyingStep
		}
		p.step = max(finest, p.step*narrowing)
	}
}
