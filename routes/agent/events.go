package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reasonNotReady is of the Event that says why a node's network isn't as it should
// be: a missing CNI plugin, a file of another network that comes first, a route
// that can't be written. Probes only tell that it isn't.
const reasonNotReady = "NetworkNotReady"

// repeatEvery is how often what lasts is told again: the API server forgets an
// Event after an hour.
const repeatEvery = 10 * time.Minute

// notReadyEvent is what the last Event said about a node that is not ready. It
// belongs to the status worker.
type notReadyEvent struct {
	since, told time.Time
	text        string
}

// due reports whether an Event is to be sent now, and its text. What a pass or two
// put right is not worth one, nor is waiting for podCIDRs, which a condition tells.
func (e *notReadyEvent) due(o outcome, now time.Time) (text string, due bool) {
	if o.ready == nil || !o.hasPodCIDRs {
		*e = notReadyEvent{}
		return "", false
	}
	if e.since.IsZero() {
		e.since = now
	}
	text = o.ready.Error()
	wait := repeatEvery
	if text != e.text {
		wait = rewording
	}
	if now.Sub(e.since) < rewording || now.Sub(e.told) < wait {
		return "", false
	}
	e.told, e.text = now, text
	return text, true
}

// reportNotReady sends an Event about what keeps the node from being ready.
func (s *status) reportNotReady(node *corev1.Node, o outcome, now time.Time) {
	if text, due := s.notReady.due(o, now); due {
		s.Recorder.Event(node, corev1.EventTypeWarning, reasonNotReady, text)
	}
}
