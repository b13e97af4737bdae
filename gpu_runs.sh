PARTS=/dev/shm/p source .gpu/assemble.sh
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=3
D=data.path=/dev/shm/cifar; L=/dev/shm/logs; mkdir -p $L
M=experiments/cifar10_mobilenet_v2.yaml
go() { log=$1; shift; ( time python3 -m sweep.cli train "$@" $D ) > $L/$log.log 2>&1 & }
go mA $M recipe.label_smoothing=0.1 --results /dev/shm/mA
go mB $M recipe.batch=64 recipe.learning_rate=0.05 --results /dev/shm/mB
for s in 0 1 2; do go r$s experiments/cifar10_resnet20.yaml --seed $s --results /dev/shm/r; sleep 1; done
wait
touch $L/done
