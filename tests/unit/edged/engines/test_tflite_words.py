"""Refusals in the runtimes' own words, as both were seen to write them, made clauses for a person."""

from __future__ import annotations

import pytest

from edged.engines import tflite_words

FLEX = (
    "Select TensorFlow op(s), included in the given model, is(are) not supported by this interpreter. Make sure you "
    "apply/link the Flex delegate before inference. For the Android, it can be resolved by adding "
    '"org.tensorflow:tensorflow-lite-select-tf-ops" dependency. See instructions: '
    "https://www.tensorflow.org/lite/guide/ops_selectNode number 0 (FlexErf) failed to prepare."
)
CUSTOM = (
    "Encountered unresolved custom op: Nobodys.\nSee instructions: https://www.tensorflow.org/lite/guide/ops_custom "
    "Node number 0 (Nobodys) failed to prepare."
)
VERSION = (
    "Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'. An older version of this builtin might be "
    "supported. Are you using an old TFLite binary with a newer model?\nRegistration failed.\n"
)
NUMBER = "Op builtin_code out of range: 217. Are you using old TFLite binary with newer model?Registration failed.\n"


@pytest.mark.parametrize(
    ("exc", "says"),
    [
        (RuntimeError(FLEX), "it has no Flex delegate, which FlexErf needs"),
        (RuntimeError(FLEX.partition("Node number")[0]), "it has no Flex delegate, which the model needs"),
        (RuntimeError(CUSTOM), "it has no custom op Nobodys"),
        (RuntimeError(CUSTOM.replace("Nobodys", "My.Op 2")), "it has no custom op My.Op 2"),
        (ValueError(VERSION), "it has no FULLY_CONNECTED version 12"),
        (ValueError(NUMBER), "it has no builtin op of number 217"),
        (ValueError("The model is not a valid\n Flatbuffer buffer"), "The model is not a valid Flatbuffer buffer"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_why(exc: Exception, says: str) -> None:
    """What is missing is named; what we do not know stays as it is, in one line."""
    assert tflite_words.why(exc) == says


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (
            "testdelegate: no deviceRestored original execution plan after delegate application failure.",
            "testdelegate: no device",
        ),
        (
            "chip: device lostNode number 6 (Chip) failed to invoke.",
            "chip: device lost; Node number 6 (Chip) failed to invoke",
        ),
        (
            "reshape.cc:92 8 != 6.\nNode number 0 (RESHAPE) failed to prepare.Node number 7 (Chip) failed to prepare.",
            "reshape.cc:92 8 != 6; Node number 0 (RESHAPE) failed to prepare; Node number 7 (Chip) failed to prepare",
        ),
        ("Node number 6 (Chip) failed to invoke.", "Node number 6 (Chip) failed to invoke"),
        ("Restored original execution plan after delegate application failure.", None),
        ("libchip.so: no such file", "libchip.so: no such file"),
    ],
)
def test_a_delegates_words_stand_apart_from_the_runtimes(said: str, heard: str | None) -> None:
    """The runtimes put theirs right behind; where they said nothing else, that is what there is to tell."""
    assert tflite_words.told(RuntimeError(said)) == (heard or said.rstrip("."))
