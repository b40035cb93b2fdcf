package controller

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// markReach marks the Nodes that tunnels connect from now on, for all agents and for later
// leaders. The updates of the Nodes cause the next pass. Errors cause one too.
func (c *Controller) markReach(ctx context.Context, d decision) {
	for name, reach := range d.NewReach() {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": d.uids[name], "annotations": map[string]string{kube.ReachAnnotation: string(reach)},
		}})
		if err == nil {
			_, err = c.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch,
				metav1.PatchOptions{})
		}
		switch {
		case err == nil:
			klog.FromContext(ctx).Info("Node is connected by tunnels from now on", "node", name, "reach",
				reach)
		case ctx.Err() == nil && !apierrors.IsNotFound(err):
			klog.FromContext(ctx).Error(fmt.Errorf("annotating node %s: %w", name, err),
				"Node is not marked for tunnels; trying again")
			c.passes.AddRateLimited(change)
		}
	}
}
