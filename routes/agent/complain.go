package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reasonNotReady is of the Event that says why a node's network isn't as it should
// be: a missing CNI plugin, a file of another network that comes first, a route
// that can't be written. Probes only tell that it isn't.
const reasonNotReady = "NetworkNotReady"

// retold is how often what lasts is told again: the API server forgets an Event
// after an hour.
const retold = 10 * time.Minute

// complaint is what people were told about a node that is not ready. It belongs
// to the status worker.
type complaint struct {
	since, told time.Time
	text        string
}

// due says whether people are to be told now. What a pass or two put right is not
// worth an Event, nor is waiting for podCIDRs, which a condition tells about.
func (c *complaint) due(v verdict, now time.Time) (text string, due bool) {
	if v.ready == nil || !v.hasPodCIDRs {
		*c = complaint{}
		return "", false
	}
	if c.since.IsZero() {
		c.since = now
	}
	text = v.ready.Error()
	wait := retold
	if text != c.text {
		wait = rewording
	}
	if now.Sub(c.since) < rewording || now.Sub(c.told) < wait {
		return "", false
	}
	c.told, c.text = now, text
	return text, true
}

// complain tells people what keeps the node from being ready.
func (s *status) complain(node *corev1.Node, v verdict, now time.Time) {
	if text, due := s.complaint.due(v, now); due {
		s.Recorder.Event(node, corev1.EventTypeWarning, reasonNotReady, text)
	}
}
