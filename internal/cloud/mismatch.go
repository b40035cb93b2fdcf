package cloud

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// errOtherAddress: cloud or inventory, and kubelet, disagree.
var errOtherAddress = errors.New("the kubelet's --node-ip is not an address of the machine")

// Mismatches is an InstancesV2 that reports the Nodes whose kubelet was given a wrong address: such
// a Node stays uninitialized until its kubelet has another one.
type Mismatches struct {
	cloudprovider.InstancesV2
	Client   kubernetes.Interface
	Recorder record.EventRecorder
}

// InstanceMetadata describes the Node's machine.
func (m Mismatches) InstanceMetadata(
	ctx context.Context, node *corev1.Node,
) (*cloudprovider.InstanceMetadata, error) {
	metadata, err := m.InstancesV2.InstanceMetadata(ctx, node)
	told := kube.Condition(node, kube.AddressesMatch)
	switch {
	case errors.Is(err, errOtherAddress):
		m.Recorder.Event(node, corev1.EventTypeWarning, "AddressMismatch", err.Error())
		if told == nil || told.Status != corev1.ConditionFalse || told.Message != err.Error() {
			m.set(ctx, node, corev1.ConditionFalse, "AddressMismatch", err.Error())
		}
	case metadata != nil && told != nil && told.Status == corev1.ConditionFalse:
		m.set(ctx, node, corev1.ConditionTrue, "AddressesMatch", "the kubelet's addresses are the machine's")
	}
	return metadata, err
}

// set writes the condition. What fails is written at the next look at the Node, which upstream
// takes every few minutes: nothing depends on it.
func (m Mismatches) set(
	ctx context.Context, node *corev1.Node, status corev1.ConditionStatus, reason, message string,
) {
	c := corev1.NodeCondition{Type: kube.AddressesMatch, Status: status, Reason: reason, Message: message}
	if _, err := kube.SetCondition(ctx, m.Client, node, c, time.Now()); err != nil {
		klog.FromContext(ctx).Error(err, "Condition not written", "node", node.Name)
	}
}
